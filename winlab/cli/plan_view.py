"""Prints a plan for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from winlab.cli.common import print_table, say
from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.model import Plan, WindowsPlan
from winlab.design.plan.stock import HostFile
from winlab.design.spec.sizes import human

REACH = {
    "internet": "internet and the host's networks; no other labs; on this host only DNS and ping",
    "labs": "as above, and OTHER LABS whose network.reach is labs or all",
    "all": "everything: the internet, OTHER LABS whose network.reach is labs or all, and THIS HOST'S OWN SERVICES",
}


def show(plan: Plan, leaving: Sequence[HostFile] = ()) -> None:
    """Print the plan as tables.

    :param leaving: the files of this host that go to nodes.
    """
    net, host = plan.network, plan.host
    basis = "recorded by 'winlab host setup'" if host.recorded else "assumed: this host was not set up"
    say(f"Lab {plan.lab}, plan {plan.digest}. Nothing was touched.")
    print_table(
        ["", ""],
        [
            *([[name, _host(facts)] for name, facts in plan.hosts.items()] or [["host", f"{_host(host)} ({basis})"]]),
            ["switch", f"{net.switch}, {net.cidr}, MTU {net.mtu}, domain {net.domain}"],
            ["router", f"{net.router}, inside {net.gateway} {net.gateway_mac}"],
            ["", f"outside {net.router_external} {net.router_external_mac}, next hop {net.external_gateway}"],
            ["reach", REACH[net.reach]],
            ["resolvers", ", ".join(net.resolvers)],
            *_cluster(plan),
            *(["add-on", _addon(row)] for row in plan.addons),
        ],
    )
    print_table(
        ["NODE", "IMAGE", "CPUS", "MEMORY", "MAC", "ADDRESS", "FROM OUTSIDE"],
        [[n.name, n.image, str(n.cpus), human(n.memory_mib), n.mac, n.address, n.floating] for n in plan.nodes],
    )
    print_table(
        ["NODE", "ON", "DOMAIN", "UUID", "OVN PORT", "BUS", "NIC"],
        [[n.name, n.hypervisor, n.domain, n.uuid, n.port, n.bus, n.nic] for n in plan.nodes],
    )
    if plan.placed:
        print_table(["NODE", "ON", "BECAUSE"], [[n.name, n.hypervisor, plan.placed[n.name]] for n in plan.nodes])
    print_table(
        ["NODE", "VOLUME", "FORMAT", "SIZE", "BACKING"],
        [
            [n.name, v.name, v.format, human(v.capacity_mib) if v.capacity_mib else "auto", v.backing or ""]
            for n in plan.nodes
            for v in n.volumes
        ],
    )
    rows = [[n.name, n.windows.computer_name, n.windows.image_name, _medium(n.windows)] for n in plan.windows_nodes()]
    if rows:
        print_table(["NODE", "COMPUTER NAME", "IMAGE IN INSTALL.WIM", "MEDIA"], rows)
    if leaving:
        say("Files of this host that leave it:")
        print_table(
            ["FILE", "NAMED BY", "FOR THE NODES OF"], [[str(f.path), f.field, f.pool or "all pools"] for f in leaving]
        )
    memory = sum(n.memory_mib for n in plan.nodes)
    disk = sum(n.disk_mib for n in plan.nodes)
    cpus = sum(n.cpus for n in plan.nodes)
    say(f"In all: {cpus} CPUs, {human(memory)} of memory, {human(disk)} of disk (thin).")


def _host(facts: MachineFacts) -> str:
    return f"{facts.accelerator}, OVS datapath {facts.datapath}"


def _cluster(plan: Plan) -> list[list[str]]:
    if plan.kubernetes is None:
        return [["kubernetes", "none: the lab has no cluster"]]
    cluster, versions = plan.kubernetes, plan.kubernetes.versions
    rows = [
        ["kubernetes", f"{versions.kubernetes}, containerd {versions.containerd}, etcd {versions.etcd}"],
        ["", f"API server {cluster.endpoint}, for the host {cluster.external}"],
        ["", f"CNI {cluster.profile}, pods {cluster.pod_cidr}, services {cluster.service_cidr}"],
    ]
    if plan.beside:
        rows.append(["", f"beside the cluster: {', '.join(node.name for node in plan.beside)}"])
    return rows


def _medium(windows: WindowsPlan) -> str:
    return f"SHA-256 {windows.medium[:12]}..." if windows.own_medium else "from the image's recipe"


def _addon(row: AddonPlan) -> str:
    """An add-on's settings and machines: ``motd text=hello; pool motd``."""
    shown = f"{row.name} {_settings(row.settings)}".strip()
    return "; ".join([shown, *(f"pool {name}" for name in row.pools)])


def _settings(settings: dict[str, Any]) -> str:
    """The settings: ``resolution=20, ...``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
