"""A node that moves to another hypervisor: the plan after it, what is refused, and what needs it to be off."""

from __future__ import annotations

from typing import Any

import pytest
from placing import LINUX, SITE, host, hosts, plan, where

from winlab.design import spec
from winlab.design.plan import moved, placement
from winlab.design.plan.changes import changes
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts, Moves
from winlab.design.plan.model import Plan
from winlab.design.render.topology import topology
from winlab.errors import ConflictError, HostError, UsageError

THERE = MachineFacts(chassis="hypervisor-2")
TODAY = "2027-01-31"


def move(old: Plan, node: str, to: str = "hypervisor-2") -> Plan:
    return moved.plan(old, node, to, THERE, SITE.machine)


def test_a_moved_node_is_the_same_lab_and_stays_where_it_is() -> None:
    first = plan("1-1-1", at=hosts(20, 20))
    after = move(first, "node-1")
    assert where(after) == {"controller-1": HYPERVISOR, "node-1": "hypervisor-2"}
    assert (after.digest, after.placed["node-1"]) == (first.digest, moved.WHY)
    assert after.hosts.keys() == {HYPERVISOR, "hypervisor-2"}
    made = (host(HYPERVISOR, nodes=frozenset(["controller-1"])), host("hypervisor-2"))
    again = plan("1-1-1", at=made, standing=(after,))
    assert (where(again), again.digest, changes([after], again).every) == (where(after), after.digest, ())
    assert where(move(after, "node-1", HYPERVISOR)) == where(first)


def test_a_lab_of_a_site_that_had_one_hypervisor_records_both() -> None:
    after = move(plan("1-1-1", at=()), "node-1")
    assert after.hosts == {HYPERVISOR: SITE.machine, "hypervisor-2": THERE}
    assert after.placed.keys() == {"controller-1", "node-1"}


def test_a_lab_whose_nodes_are_back_is_planned_as_it_is_recorded() -> None:
    """Otherwise 'winlab diff' would report its network."""
    own = MachineFacts(chassis=HYPERVISOR)
    away = moved.plan(plan("1-1-1", at=()), "node-1", "hypervisor-2", THERE, own)
    back = moved.plan(away, "node-1", HYPERVISOR, own, own)
    assert back.hosts == {HYPERVISOR: own}
    nodes = frozenset(["controller-1", "node-1"])
    for made in ((host(HYPERVISOR, nodes=nodes),), (host(HYPERVISOR, nodes=nodes), host("hypervisor-2"))):
        again = plan("1-1-1", at=made, standing=(back,))
        assert (topology(again), changes([back], again).every) == (topology(back), ())


def test_the_spec_lets_the_lab_use_what_it_is_on() -> None:
    given = spec.load("1-1-1", LINUX)
    after = move(plan("1-1-1", at=hosts(20, 20)), "node-1")
    assert moved.spec(given, after).hypervisors == 2
    assert moved.spec(moved.spec(given, after), after).hypervisors == 2
    with pytest.raises(UsageError, match="on 2 hypervisors, and 1 are to be used"):
        plan("1-2-1", at=hosts(20, 20), standing=(after,))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (["workers.hypervisor=hypervisor-1"], "the lab's spec pins it to 'hypervisor-1'"),
        (["workers.apart=true", "hypervisors=2"], "apart from node-2"),
    ],
)
def test_the_spec_decides(changed: list[str], says: str) -> None:
    given = spec.load("1-2-1", [*LINUX, *changed])
    old = plan("1-2-1", *changed, at=hosts(20, 20))
    node = next(one for one in old.nodes if one.name == "node-1")
    old = move(old, "node-2")
    with pytest.raises(ConflictError, match=says):
        moved.require(given, old, node, "hypervisor-2", SITE)


def test_packets_that_tunnels_do_not_take_keep_a_lab_where_it_is() -> None:
    given, old = spec.load("1-1-1", LINUX), plan("1-1-1", at=hosts(20, 20))
    assert old.network.mtu == 1500
    with pytest.raises(ConflictError, match="up to 1500 bytes, and tunnels between hypervisors take 1442") as caught:
        moved.require(given, old, old.node("node-1"), "hypervisor-2", SITE)
    assert "network.mtu=1442" in caught.value.cure
    small = plan("1-1-1", "network.mtu=1442", at=hosts(20, 20))
    moved.require(given, small, small.node("node-1"), "hypervisor-2", SITE)


def facts(**changes: Any) -> HostFacts:
    given = {"accelerator": "kvm", "emulator_version": "9.2.0", "moves": Moves(address="192.0.2.1", until="2027-05-01")}
    return HostFacts(**{**given, **changes})


@pytest.mark.parametrize(
    ("here", "there", "says"),
    [
        ({}, {}, ""),
        ({}, {"emulator_version": "10.0.1"}, ""),
        ({}, {"moves": None}, "'b' has no certificate"),
        ({"moves": Moves(address="192.0.2.1", until="2027-01-30")}, {}, "'a' has a certificate only until 2027-01-30"),
        ({"accelerator": "tcg"}, {}, "'a' runs guests with tcg, and 'b' with kvm"),
        ({"datapath": "netdev"}, {}, "the datapath of 'a' is netdev"),
        ({}, {"emulator_version": "7.2.0"}, "QEMU is 9.2.0 on 'a', and 7.2.0 on 'b'"),
    ],
)
def test_what_keeps_a_machine_from_moving_while_it_runs(here: dict[str, Any], there: dict[str, Any], says: str) -> None:
    said = moved.hinders(("a", facts(**here)), ("b", facts(**there)), TODAY)
    assert said.startswith(says)
    assert bool(said) == bool(says)


def test_a_drained_hypervisor_gets_no_new_nodes_and_the_plan_says_so() -> None:
    at = (host(HYPERVISOR, 20), host("hypervisor-2", 30, drained=True), host("hypervisor-3", 20))
    made = plan("1-1-2", at=at)
    assert set(where(made).values()) == {HYPERVISOR, "hypervisor-3"}
    assert all("no new nodes on hypervisor-2, which is drained" in why for why in made.placed.values())
    with pytest.raises(HostError, match="hypervisor-2: drained, takes no new nodes") as caught:
        plan("1-2-3", at=at)
    assert "only 2 of them can" in caught.value.what
    after = move(made, "node-1")
    assert where(plan("1-1-2", at=at, standing=(after,)))["node-1"] == "hypervisor-2"


def test_a_node_that_leaves_goes_where_there_is_most_room() -> None:
    at = (host(HYPERVISOR, 20, drained=True), *hosts(1, 12, 16)[1:])
    old = plan("1-2-1", at=hosts(20, 20, 20))
    given = spec.load("1-2-1", LINUX)
    assert placement.elsewhere(given, old, old.node("node-1"), at).host == "hypervisor-3"
    with pytest.raises(HostError, match="No hypervisor of the lab has room for 'node-1'"):
        placement.elsewhere(given, old, old.node("node-1"), hosts(20))
