"""Whether a lab and a cluster will reach each other, before machines are made, and what is left when it goes."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import plans
import pytest

from winlab import settings
from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan import tags
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.design.plan.facts import HostFacts, Way
from winlab.design.plan.model import Plan
from winlab.errors import UsageError
from winlab.events import Quiet
from winlab.host import attachment as bridges
from winlab.host import connect, routes
from winlab.operations import attachment

BRIDGE = LocalBridge("br-1", "172.18.0.0/16", "172.18.0.1")
CLUSTER = ForeignCluster(
    server="https://172.18.0.2:6443", advertised="https://172.18.0.2:6443", ca="", version="v1.36.1",
    pod_cidr="10.244.0.0/16", service_cidr="10.96.0.0/16", dns="10.96.0.10", domain="cluster.local", cni=None,
    cni_note="kindnet", nodes=("cp",), addresses=("172.18.0.2",), on_link=True,
)  # fmt: skip
ROUTED, ATTACHED = "network.attachment=routed", "network.attachment=attached"


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What this host says: troubles, and the addresses that answer."""
    says: dict[str, Any] = {"bridge": BRIDGE, "trouble": "", "route": "", "taken": [], "silent": False}

    def create_connection(_address: object, _seconds: float) -> object:
        if says["silent"]:
            raise TimeoutError("timed out")
        return nullcontext()

    monkeypatch.setattr(settings, "network_is_here", lambda: True)
    monkeypatch.setattr(bridges, "find", lambda _nodes: says["bridge"])
    monkeypatch.setattr(bridges, "trouble", lambda _name: says["trouble"])
    monkeypatch.setattr(bridges, "answered", lambda wanted, _bridge: [one for one in wanted if one in says["taken"]])
    monkeypatch.setattr(routes, "trouble", lambda *_: says["route"])
    monkeypatch.setattr(attachment.socket, "create_connection", create_connection)
    return says


def made(*changes: str) -> Plan:
    wanted = spec.load("1-1-1", ["workers.os=windows-2022", *changes], environment={})
    cluster = attachment.located(CLUSTER, wanted)
    return making.make(wanted, "lab", plans.KVM, plans.stock(wanted), cluster)


def refusal(plan: Plan, there: tuple[str, ...] = ()) -> UsageError | None:
    try:
        attachment.require(plan, CLUSTER, there)
    except UsageError as error:
        return error
    return None


def test_a_translated_lab_needs_nothing(host: dict[str, Any]) -> None:
    host.update(trouble="x", route="x", silent=True)
    assert refusal(made("network.cni=l3")) is None


def test_a_routed_lab_needs_this_host_s_route_and_the_nodes(host: dict[str, Any]) -> None:
    plan = made(ROUTED, "network.cni=l3")
    assert refusal(plan) is None
    host["silent"] = True
    error = refusal(plan)
    assert error is not None
    assert "reaches none of the cluster's nodes: 172.18.0.2:10250: timed out" in error.why
    host["route"] = "This host has no route"
    error = refusal(plan)
    assert error is not None
    assert f"sudo winlab host route 10.77.0.0/24 --via {plan.network.router_external} --for 172.18.0.2/32" in error.cure


def test_an_attached_lab_needs_the_bridge_and_free_addresses(host: dict[str, Any]) -> None:
    plan = made(ATTACHED)
    assert refusal(plan) is None
    host["taken"] = [plan.nodes[0].address]
    error = refusal(plan)
    assert error is not None
    assert f"in use already: {plan.nodes[0].address}" in error.why
    assert refusal(plan, (plan.nodes[0].name,)) is None  # its own machine answers
    host["trouble"] = "The bridge is not joined"
    error = refusal(plan)
    assert error is not None
    assert "sudo winlab host attach br-1" in error.cure


@pytest.mark.parametrize(
    ("changes", "says", "trouble", "command"),
    [
        ((), {}, "", ""),
        ((ROUTED,), {"route": "none"}, "none", "--for 172.18.0.2/32 --for 10.244.0.0/24"),
        ((ROUTED, "network.routed=[192.0.2.0/24]"), {"route": "none"}, "none", "--for 192.0.2.0/24"),
        ((ATTACHED,), {}, "", ""),
        ((ATTACHED,), {"trouble": "not joined"}, "not joined", "host attach br-1"),
        ((ATTACHED,), {"bridge": None}, "No bridge of this host", "--attachment routed"),
    ],
)
def test_the_check_says_the_same(
    host: dict[str, Any], changes: tuple[str, ...], says: dict[str, Any], trouble: str, command: str
) -> None:
    host.update(says)
    wanted = spec.load("1-1-1", changes, environment={})
    found = attachment.ends(wanted, "lab", plans.KVM, "172.31.240.16", CLUSTER.addresses, ["10.244.0.0/24"])
    assert (trouble in found.trouble, bool(found.trouble)) == (True, bool(trouble))
    assert command in found.command
    assert found.attachment == wanted.network.attachment


def test_what_repair_says_and_does(host: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr(connect, "attach", lambda _progress, *words: done.append(words))
    monkeypatch.setattr(connect, "route", lambda _progress, *words: done.append(words))
    routed, attached = made(ROUTED, "network.cni=l3"), made(ATTACHED)
    assert attachment.trouble(made("network.cni=l3")) == ("", "")
    host.update(route="no route", trouble="not joined")
    assert attachment.trouble(routed)[0] == "no route"
    assert attachment.trouble(attached) == ("not joined", "sudo winlab host attach br-1")
    attachment.restore(routed, Quiet())
    attachment.restore(attached, Quiet())
    assert [words[0] for words in done] == ["10.77.0.0/24", "br-1"]  # type: ignore[index]


def test_the_route_of_a_lab_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = made(ROUTED, "network.cni=l3", "network.floating_block=5")
    every = [tags.of(plan, node) for node in plan.nodes]
    ways = {plan.network.cidr: Way(router=plan.network.router_external, networks=("192.0.2.5/32",))}
    known = HostFacts(recorded=True, ways=ways)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert attachment.leave(every, known) == ["sudo winlab host route 10.77.0.0/24 --undo"]
    other = [tag.model_copy(update={"floating": "172.31.241.7"}) for tag in every]
    assert attachment.leave(other, known) == []  # another lab with the same inner network
    done: list[str] = []
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(connect, "route", lambda _progress, lab, _way: done.append(lab))
    assert attachment.leave(every, known) == []
    assert done == ["10.77.0.0/24"]


def test_only_attached_workers_need_the_bridge() -> None:
    wanted = spec.load("1-1-1", [ROUTED], environment={})
    assert attachment.located(CLUSTER, wanted) == CLUSTER
    assert attachment.located(CLUSTER, spec.load("1-1-1", [ATTACHED], environment={})) == replace(
        CLUSTER, bridge=BRIDGE
    )
