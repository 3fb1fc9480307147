"""Prints a plan for people: what will exist, what it takes, and whether that is there. Details with --output wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from winlab.cli import table
from winlab.cli.common import print_table, say
from winlab.cli.progress import about
from winlab.design.plan.addon_plan import AddonPlan
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.network_plan import NetworkPlan
from winlab.design.plan.node_plan import WindowsPlan
from winlab.design.plan.stock import HostFile
from winlab.design.plan.verdict import Missing, Room, Verdict
from winlab.design.spec.sizes import human

REACH = {
    "internet": "internet and the host's networks; no other labs; on this host only DNS and ping",
    "labs": "as above, and OTHER LABS whose network.reach is labs or all",
    "all": "everything: the internet, OTHER LABS whose network.reach is labs or all, and THIS HOST'S OWN SERVICES",
}


def show(plan: Plan, verdict: Verdict, leaving: Sequence[HostFile] = ()) -> None:
    """Print the plan, and what it takes to make it.

    :param leaving: the files of this host that go to nodes.
    """
    say(f"Lab {plan.lab}, plan {plan.digest}. Nothing was touched.")
    on = {node.name: node.hypervisor if plan.hosts else "" for node in plan.nodes}
    print_table(
        ["NODE", "ON", "IMAGE", "CPUS", "MEMORY", "DISK", "ADDRESS", "FROM HOST", "MAC"],
        [
            [
                n.name,
                on[n.name],
                n.image,
                str(n.cpus),
                human(n.memory_mib),
                human(n.disk_mib),
                n.address,
                n.floating,
                n.mac,
            ]
            for n in plan.nodes
        ],
        drop=("ADDRESS", "CPUS"),
        details=("MAC",),
    )
    if plan.placed:
        print_table(["NODE", "ON", "BECAUSE"], [[n.name, n.hypervisor, plan.placed[n.name]] for n in plan.nodes])
    if table.wide.get():
        _details(plan)
    if leaving:
        say("Files of this host that leave it:")
        print_table(
            ["FILE", "NAMED BY", "FOR THE NODES OF"], [[str(f.path), f.field, f.pool or "all pools"] for f in leaving]
        )
    print_table(["", ""], [*_summary(plan), *_needs(plan, verdict)])
    say(answer(verdict))


def answer(verdict: Verdict) -> str:
    """Whether the lab can be made, in a sentence."""
    if verdict.refused is not None:
        return f"✗ create would be refused: {verdict.refused.what} {verdict.refused.cure}".rstrip()
    if any(room.memory > room.free_memory for room in verdict.rooms):
        return "✗ create would be refused now: there is not enough memory."
    if verdict.unknown:
        return "! Memory, disk and time are not known."
    if any(room.disk > room.free_disk for room in verdict.rooms):
        return "! The lab fits, until its disks have grown: they may fill the pool."
    return "✓ The lab fits."


def _summary(plan: Plan) -> list[list[str]]:
    if plan.kubernetes is None:
        rows = [["Kubernetes", "none: the lab has no cluster"]]
    else:
        rows = [["Kubernetes", f"{plan.kubernetes.versions.kubernetes}, CNI {plan.kubernetes.profile}"]]
    if plan.beside:
        rows.append(["beside it", ", ".join(node.name for node in plan.beside)])
    rows += [["add-on", _addon(row)] for row in plan.addons]
    if plan.network.attachment is not None:
        rows.append(["attachment", attached(plan.network)])
    if plan.network.reach != "internet":
        rows.append(["reach", REACH[plan.network.reach]])
    return rows


def attached(network: NetworkPlan) -> str:
    """How a lab and the external cluster that it joins reach each other, if its router does not translate."""
    assert network.attachment is not None
    if bridge := network.attachment.bridge:
        return f"attached to {bridge}, {network.cidr}"
    return f"routed to {', '.join(network.attachment.networks)}"


def _needs(plan: Plan, verdict: Verdict) -> list[list[str]]:
    """What is got first, how long it takes, and what it takes of the hosts."""
    rows = [[how, ", ".join(_sized(one) for one in verdict.missing if one.how == how)] for how in ("download", "build")]
    rows = [row for row in rows if row[1]] or [["download", "nothing"]]
    if not verdict.unknown:
        for room in verdict.rooms:
            of = f" on {room.hypervisor}" if plan.hosts else ""
            rows += [[f"memory{of}", _memory(room)], [f"disk{of}", _disk(room)]]
        if not verdict.rooms:
            rows.append(["memory", "none: all machines run"])
    else:
        memory, disk = (sum(sizes) for sizes in zip(*((n.memory_mib, n.disk_mib) for n in plan.nodes), strict=True))
        rows += [["memory", human(memory)], ["disk", f"up to {human(disk)}"], ["host", verdict.unknown]]
    if verdict.seconds is not None:
        rough = " (estimated)" if verdict.estimated else ""
        rows.append(["time", f"about {about(verdict.seconds)}{rough}"])
    return rows


def _sized(one: Missing) -> str:
    return one.what if one.size is None else f"{one.what} ({_gib(one.size >> 20)})"


def _memory(room: Room) -> str:
    return f"{_gib(room.memory)} needed, {_gib(room.free_memory)} free"


def _disk(room: Room) -> str:
    return f"up to {_gib(room.disk)}, {_gib(room.free_disk)} free"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f} GiB" if mib % 1024 else f"{mib // 1024} GiB"


def _details(plan: Plan) -> None:
    net, host = plan.network, plan.host
    basis = "recorded by 'winlab host setup'" if host.recorded else "assumed: this host was not set up"
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
        ],
    )
    print_table(
        ["NODE", "ON", "DOMAIN", "UUID", "OVN PORT", "BUS", "NIC"],
        [[n.name, n.hypervisor, n.domain, n.uuid, n.port, n.bus, n.nic] for n in plan.nodes],
    )
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


def _host(facts: MachineFacts) -> str:
    return f"{facts.accelerator}, OVS datapath {facts.datapath}"


def _cluster(plan: Plan) -> list[list[str]]:
    if plan.kubernetes is None:
        return []
    cluster, versions = plan.kubernetes, plan.kubernetes.versions
    return [
        ["versions", f"{versions.kubernetes}, containerd {versions.containerd}, etcd {versions.etcd}"],
        ["API server", f"{cluster.endpoint}, for the host {cluster.external}"],
        ["networks", f"pods {cluster.pod_cidr}, services {cluster.service_cidr}"],
    ]


def _medium(windows: WindowsPlan) -> str:
    return f"SHA-256 {windows.medium[:12]}..." if windows.own_medium else "from the image's recipe"


def _addon(row: AddonPlan) -> str:
    """An add-on's settings and machines: ``motd text=hello; pool motd``."""
    shown = f"{row.name} {_settings(row.settings)}".strip()
    return "; ".join([shown, *(f"pool {name}" for name in row.pools)])


def _settings(settings: dict[str, Any]) -> str:
    """The settings: ``resolution=20, ...``."""
    return ", ".join(f"{name}={value}" for name, value in settings.items() if value is not None)
