"""What keeps labs apart: which packets a lab's router drops, and from which addresses a node may send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import external
import plans
import pytest

from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.model import Plan
from winlab.design.render.topology import topology
from winlab.errors import UsageError


def policies(plan: Plan, port: str = "inside", field: str = "dst") -> list[tuple[str, str]]:
    """The router's action per source port or destination, highest priority first."""
    rows = sorted(topology(plan).policies, key=lambda one: -one.priority)
    begins = {
        f'inport == "{plan.network.router}-inside" && ip4.dst == ',
        f'inport == "{plan.network.router}-outside" && ip4.src == ',
    }
    assert all(any(one.match.startswith(begin) for begin in begins) for one in rows)
    begin = f'inport == "{plan.network.router}-{port}" && ip4.{field} == '
    return [(one.match.removeprefix(begin), one.action) for one in rows if one.match.startswith(begin)]


def test_by_default_no_other_lab_is_reached() -> None:
    plan = plans.make(plans.KVM)
    own = [plan.network.router_external, *(node.floating for node in plan.nodes)]
    assert policies(plan) == [
        ("169.254.0.0/16", "drop"),
        (f"{{{', '.join(['172.31.240.1', *own])}}}", "allow"),
        ("172.31.240.0/20", "drop"),
    ]
    assert policies(plan, "outside", "src") == [
        (f"{{{', '.join(['172.31.240.1', *own])}}}", "allow"),
        ("172.31.240.0/20", "drop"),
    ]
    for builder in plan.builders:
        assert builder.network.router_external in policies(builder)[1][0]


@pytest.mark.parametrize("reach", ["labs", "all"])
def test_other_labs_are_reached_if_the_spec_says_so_and_metadata_never(reach: str) -> None:
    plan = plans.make(plans.KVM, "1-1-1", f"network.reach={reach}")
    assert policies(plan) == [("169.254.0.0/16", "drop")]
    assert policies(plan, "outside", "src") == []


def test_a_link_local_name_server_is_reached_on_its_port_alone() -> None:
    """In Google's cloud the name server has the address of the metadata service."""
    plan = plans.make(plans.KVM, "1-1-1", "network.dns=[169.254.169.254]")
    assert policies(plan)[:3] == [
        ("169.254.169.254 && udp.dst == 53", "allow"),
        ("169.254.169.254 && tcp.dst == 53", "allow"),
        ("169.254.0.0/16", "drop"),
    ]


def test_the_host_knows_open_labs_by_the_router_s_address() -> None:
    macs = {
        reach: plans.make(plans.KVM, "1-1-1", f"network.reach={reach}").network.router_external_mac
        for reach in ("internet", "labs", "all")
    }
    assert macs["internet"] == macs["labs"]
    assert macs["internet"].startswith("52:54:00:")
    assert macs["all"] == macs["internet"].replace("52:54:00:", "52:54:01:")
    builders = plans.make(plans.KVM, "1-1-1", "network.reach=all").builders
    assert [one.network.router_external_mac[:8] for one in builders] == ["52:54:01"]


def test_a_lab_created_before_the_reach_setting_is_unchanged() -> None:
    """Its digest had no such field; a lab with another reach is another one."""
    plan = plans.make(plans.KVM)
    assert "reach" not in plan.network.lasting()
    assert {
        plans.make(plans.KVM, "1-1-1", f"network.reach={reach}").digest == plan.digest for reach in ("labs", "all")
    } == {False}


@pytest.mark.parametrize(
    ("profile", "pods"),
    [("l3", True), ("host-gw", True), ("calico-bgp", True), ("calico-vxlan", False), ("flannel-vxlan", False)],
)
def test_nodes_send_from_their_own_addresses_and_their_pods(profile: str, pods: bool) -> None:
    plan = plans.make(plans.KVM, "1-2-1", f"network.cni={profile}", "kubernetes.pod_cidr=10.200.0.0/16")
    to_router, *ports = topology(plan).ports
    assert to_router.security == ""
    assert [port.security for port in ports] == [
        f"{node.mac} {node.address}" + (" 10.200.0.0/16" if pods else "") for node in plan.nodes
    ]


@pytest.mark.parametrize(
    ("server", "reach", "need"),
    [
        ("192.0.2.10", "internet", None),
        ("172.31.240.1", "internet", "all"),
        ("172.31.240.1", "labs", "all"),
        ("172.31.240.1", "all", None),
        ("172.31.240.65", "internet", "labs"),
        ("172.31.240.65", "labs", None),
        ("172.31.240.65", "all", None),
    ],
)
def test_workers_that_would_not_reach_their_cluster_are_refused(server: str, reach: str, need: str | None) -> None:
    wanted = spec.load("1-1-1", ["workers.os=windows-rehearsal", f"network.reach={reach}"])
    words: dict[str, Any] = {"server": f"https://{server}:6443", "advertised": f"https://{server}:6443"}
    cluster = replace(external.CLUSTER, **words)
    if need is None:
        assert making.make(wanted, "lab", plans.KVM, plans.stock(wanted), cluster).joins
        return
    with pytest.raises(UsageError, match="would not reach the cluster's API server") as caught:
        making.make(wanted, "lab", plans.KVM, plans.stock(wanted), cluster)
    assert f"--set network.reach={need}" in caught.value.cure
