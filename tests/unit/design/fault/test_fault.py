"""Faults as values: what is accepted, what is recorded, what they mean for OVN and for a node's script."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from winlab.design import fault
from winlab.design.contract import on_both
from winlab.design.fault import KINDS, clock, disk
from winlab.design.fault.base import InnerFault, Place, SwitchFault
from winlab.design.system import LINUX, WINDOWS
from winlab.errors import UsageError

SETTINGS: dict[str, dict[str, Any]] = {
    "loss": {"percent": 20},
    "delay": {"ms": 100, "jitter": 20},
    "bandwidth": {"mbit": 10},
    "clock": {"skew": "+2h"},
    "disk": {"free": "50MiB"},
}
PLACES = {
    name: Place(name, system, f"52:54:00:00:00:0{number}", f"port-{number}", f"10.0.0.{number}", f"172.31.0.{number}")
    for number, (name, system) in enumerate(
        {"controller-1": LINUX, "linux-1": LINUX, "win-1": WINDOWS, "win-2": WINDOWS}.items(), 1
    )
}
MAC = {name: place.mac for name, place in PLACES.items()}


def made(kind: str, *nodes: str, **settings: object) -> fault.Fault:
    return fault.make(kind, nodes, **(settings or SETTINGS.get(kind, {})))


def link(node: str, **what: int) -> on_both.LinkFault:
    return on_both.LinkFault(mac=MAC[node], addresses=list(PLACES[node].sources), **what)


def inner(kind: str, *nodes: str, **settings: object) -> InnerFault:
    one = made(kind, *nodes, **settings)
    assert isinstance(one, InnerFault)
    return one


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_matches_its_record(kind: str) -> None:
    one = made(kind, "node-1")
    assert fault.read(one.record()) == one
    assert one.id == f"{kind}.node-1"
    assert one.effect()


def test_a_pair_is_the_same_from_both_ends() -> None:
    assert made("partition", "node-1", "controller-1") == made("partition", "controller-1", "node-1")
    assert made("partition", "node-1", "controller-1").id == "partition.controller-1.node-1"


@pytest.mark.parametrize(
    ("kind", "nodes", "settings", "says"),
    [
        ("fire", ["node-1"], {}, "There is no fault 'fire'"),
        ("kill", [], {}, "one node, not 0"),
        ("kill", ["a", "b"], {}, "one node, not 2"),
        ("loss", ["a", "b", "c"], {"percent": 1}, "one node or two, not 3"),
        ("loss", ["a", "a"], {"percent": 1}, "both ends"),
        ("loss", ["a"], {}, "percent"),
        ("loss", ["a"], {"percent": 0}, "percent"),
        ("loss", ["a"], {"percent": 101}, "percent"),
        ("loss", ["a"], {"percent": float("nan")}, "percent"),
        ("delay", ["a"], {"ms": 10, "jitter": 11}, "vary"),
        ("bandwidth", ["a"], {"mbit": 0}, "mbit"),
        ("clock", ["a"], {"skew": "0h"}, "not a fault"),
        ("clock", ["a"], {"skew": "noon"}, "+2h"),
        ("clock", ["a"], {"skew": "99999d"}, "skew"),
        ("disk", ["a"], {"free": "50 apples"}, "50MiB"),
        ("disk", ["a"], {"free": -1}, "free"),
        ("freeze", ["a"], {"colour": "red"}, "colour"),
    ],
)
def test_impossible_faults_are_refused(kind: str, nodes: list[str], settings: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        fault.make(kind, nodes, **settings)
    assert says in f"{refused.value.what} {refused.value.why}"


@pytest.mark.parametrize(
    "record",
    [None, [], "x", {}, {"kind": "kill"}, {"kind": [], "nodes": ["a"]}, {"kind": "kill", "nodes": [1]},
     {"kind": "kill", "nodes": "ab"}, {"kind": "kill", "nodes": ["a"], "kinds": 1}, {"kind": "loss", "nodes": ["a"]}],
)  # fmt: skip
def test_a_malformed_record_is_skipped(record: object) -> None:
    assert fault.read(record) is None


@pytest.mark.parametrize(
    ("text", "seconds"), [("+2h", 7200), ("-30m", -1800), ("1d12h", 129600), ("90", 90), ("-90s", -90), (5, 5)]
)
def test_times(text: object, seconds: int) -> None:
    assert clock.parse(text) == seconds


def test_a_time_is_shown_as_users_write_it() -> None:
    assert clock.shown(-(86400 + 1800)) == "1 d 30 min"


@pytest.mark.parametrize(
    ("text", "size"),
    [("50MiB", 50 << 20), ("0", 0), ("1 GiB", 1 << 30), ("7", 7), (7, 7), ("2GB", 2 << 30), ("1.5g", 3 << 29)],
)
def test_sizes(text: object, size: int) -> None:
    assert disk.parse(text) == size


# -- OVN


def rules(kind: str, *nodes: str) -> list[tuple[str, str, int]]:
    one = made(kind, *nodes)
    assert isinstance(one, SwitchFault)
    return [(rule.match, rule.direction, rule.kbit) for rule in one.rules(PLACES)]


def test_a_pair_is_cut_in_both_directions_and_by_both_addresses() -> None:
    a, b = "controller-1", "win-1"
    assert rules("partition", b, a) == [
        ('outport == {"port-3"} && (inport == {"port-1"} || ip4.src == {10.0.0.1, 172.31.0.1})', "to-lport", 0),
        ('outport == {"port-1"} && (inport == {"port-3"} || ip4.src == {10.0.0.3, 172.31.0.3})', "to-lport", 0),
    ]


@pytest.mark.parametrize("kind", ["partition", "bandwidth"])
def test_pods_that_the_router_knows_count_as_their_nodes(kind: str) -> None:
    one = made(kind, "controller-1", "win-1")
    assert isinstance(one, SwitchFault)
    of, to = (
        dataclasses.replace(PLACES[name], pods=(f"10.244.{number}.0/24",)) for number, name in enumerate(one.nodes)
    )
    matches = [rule.match for rule in one.rules({of.node: of, to.node: to})]
    assert "ip4.src == {10.0.0.1, 172.31.0.1, 10.244.0.0/24}" in matches[0]
    assert "ip4.src == {10.0.0.3, 172.31.0.3, 10.244.1.0/24}" in matches[1]


def test_a_node_alone_is_cut_from_all_others() -> None:
    (first, *_) = rules("partition", "win-1")
    assert first[0].startswith('outport == {"port-1", "port-2", "port-4"} && (inport == {"port-3"} || ')


def test_a_node_s_line_is_limited_each_way_also_to_the_outside() -> None:
    assert rules("bandwidth", "win-1") == [
        ('inport == {"port-3"}', "from-lport", 10_000),
        ('outport == {"port-3"}', "to-lport", 10_000),
    ]
    # the port of the destination is not known on the way in
    assert {direction for _, direction, _ in rules("bandwidth", "win-1", "linux-1")} == {"to-lport"}


# -- inside of nodes


@pytest.mark.parametrize(
    ("nodes", "inside"),
    [
        (("linux-1",), ("linux-1",)),
        (("win-1",), ("controller-1", "linux-1")),
        (("controller-1", "win-1"), ("controller-1",)),
        (("win-1", "a-linux"), ("a-linux",)),
        (("controller-1", "linux-1"), ("controller-1",)),
    ],
)
def test_packets_are_lost_at_the_linux_end(nodes: tuple[str, ...], inside: tuple[str, ...]) -> None:
    places = {**PLACES, "a-linux": PLACES["linux-1"]} if "a-linux" in nodes else PLACES
    assert inner("loss", *nodes).inside(places) == inside


def test_faults_of_packets_between_two_windows_nodes_are_refused() -> None:
    with pytest.raises(UsageError, match="No packets between 'win-1' and 'win-2'"):
        made("delay", "win-1", "win-2").check(PLACES)
    made("partition", "win-1", "win-2").check(PLACES)


@pytest.mark.parametrize("kind", ["loss", "delay", "partition"])
def test_a_fault_between_nodes_needs_a_second_node(kind: str) -> None:
    with pytest.raises(UsageError, match="only node"):
        made(kind, "win-1").check({"win-1": PLACES["win-1"]})


def test_a_node_s_call_has_all_of_its_faults() -> None:
    call = on_both.Faults()
    for one in (inner("loss", "linux-1"), inner("delay", "linux-1", "win-1"), inner("clock", "linux-1"), inner("disk", "linux-1")):  # fmt: skip  # noqa: E501
        call = one.done_by("linux-1", PLACES, call)
    assert call.links == [
        link("controller-1", loss=20),
        link("win-1", loss=20, delay=100, jitter=20),
        link("win-2", loss=20),
    ]
    assert (call.skew, call.free) == (7200, 50 << 20)


def test_a_peer_applies_the_fault_to_that_node_only() -> None:
    call = inner("loss", "win-1").done_by("controller-1", PLACES, on_both.Faults())
    assert call.links == [link("win-1", loss=20)]


def test_of_two_faults_of_a_link_the_larger_counts() -> None:
    call = on_both.Faults()
    for one in (inner("loss", "linux-1", percent=5), inner("loss", "linux-1", "win-1", percent=50)):
        call = one.done_by("linux-1", PLACES, call)
    assert {link.mac: link.loss for link in call.links or ()} == {
        MAC["controller-1"]: 5,
        MAC["win-1"]: 50,
        MAC["win-2"]: 5,
    }
