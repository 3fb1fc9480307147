"""What turns one lab into another: every kind of difference, and what can't be changed, with the reason."""

from __future__ import annotations

from typing import Any

import plans
import pytest

from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.changes import Changes, changes
from winlab.design.plan.model import Plan

KEY = "AAAAA-BBBBB-CCCCC-DDDDD-EEEEE"
KEEP_CNI = "network.cni=calico-vxlan"


def planned(source: str = "1-1-1", *given: str, standing: tuple[Plan, ...] = ()) -> Plan:
    wanted = spec.load(source, ("kubernetes.version=1.36", *given))  # otherwise it follows the workers and the profile
    return making.make(wanted, "lab", plans.TCG, plans.stock(wanted), None, standing)


def compared(source: str, *given: str, before: tuple[str, ...] = ("1-1-1",)) -> Changes:
    old = planned(*before)
    return changes([old], planned(source, *given, standing=(old,)))


def told(made: Changes) -> list[tuple[str, str, str, str, str]]:
    return [(row.kind, row.what, row.before, row.after, row.when) for row in made.every]


def test_the_same_plan_has_no_changes() -> None:
    assert compared("1-1-1") == Changes()


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        (("workers.memory=4GiB",), [("changed", "node node-1: memory", "6 GiB", "4 GiB", "next start")]),
        (("workers.cpus=4",), [("changed", "node node-1: cpus", "2", "4", "next start")]),
        (("controllers.memory=4GiB",), [("changed", "node controller-1: memory", "3 GiB", "4 GiB", "next start")]),
        (("workers.count=2",), [("added", "node node-2", "", "windows-2022, 2 CPUs, 6 GiB, 10.77.0.102", "now")]),
        (
            ("workers.count=0", KEEP_CNI),
            [("removed", "node node-1", "windows-2022, 2 CPUs, 6 GiB, 10.77.0.101", "", "now")],
        ),
        (("addons.metrics-server={}",), [("added", "add-on metrics-server", "", "metrics-server v0.9.0", "now")]),
        (("network.dns=[203.0.113.9]",), [("changed", "network.dns", "192.0.2.53", "203.0.113.9", "now")]),
        (("network.cidr=10.78.0.0/24",), [("refused", "network.cidr", "10.77.0.0/24", "10.78.0.0/24", "never")]),
        (("network.reach=all",), [("refused", "network.reach", "internet", "all", "never")]),
        (
            ("kubernetes.service_cidr=10.97.0.0/16",),
            [("refused", "kubernetes.service_cidr", "10.96.0.0/16", "10.97.0.0/16", "never")],
        ),
        (
            ("kubernetes.pod_cidr=10.200.0.0/16",),
            [("refused", "kubernetes.pod_cidr", "10.244.0.0/16", "10.200.0.0/16", "never")],
        ),
        (("kubernetes.version=1.35",), [("refused", "kubernetes.version", "v1.36.3", "v1.35.4", "never")]),
        (("network.cni=flannel-vxlan",), [("refused", "network.cni", "calico-vxlan", "flannel-vxlan", "never")]),
        (("controllers.count=3",), [("refused", "controllers.count", "1", "3", "never")]),
        (("workers.disk=80GiB",), [("refused", "node node-1: disk", "60 GiB", "80 GiB", "never")]),
        (("workers.language=de-DE",), [("refused", "node node-1: language", "en-US", "de-DE", "never")]),
        (("workers.golden=false",), [("refused", "node node-1: golden", "yes", "no", "never")]),
        (("workers.firmware=bios",), [("refused", "node node-1: firmware", "uefi", "bios", "never")]),
        (("workers.nic=e1000e",), [("refused", "node node-1: network card", "virtio", "e1000e", "never")]),
        (("workers.taint=none",), [("refused", "node node-1: tainted", "yes", "no", "never")]),
        (
            ("workers.os=debian-13", KEEP_CNI),
            [
                ("changed", "controllers run", "any pods", "no pods but their own", "now"),
                ("refused", "node node-1: system", "windows-2022", "debian-13", "never"),
            ],
        ),
    ],
)
def test_every_kind_of_change(given: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    made = compared("1-1-1", *given)
    assert told(made) == rows
    assert bool(made.refused) == any(row[0] == "refused" for row in rows)
    assert all(row.why for row in made.refused)


def test_a_secret_is_not_shown() -> None:
    made = compared("1-1-1", f"workers.product_key={KEY}")
    assert told(made) == [("refused", "node node-1: product key", "", "", "never")]
    assert KEY not in repr(made.every)


def test_another_external_block_is_refused() -> None:
    (row,) = compared("1-1-1", "network.floating_block=3").every
    assert (row.kind, row.what) == ("refused", "external addresses")


def test_a_refusal_says_how_to_keep_the_existing_lab() -> None:
    (row,) = compared("1-1-1", "kubernetes.version=1.35").every
    assert "--set kubernetes.version=v1.36.3" in row.why
    (row,) = compared("1-1-1", "workers.disk=80GiB").every
    assert "a count of 0" in row.why


def test_another_add_on_s_settings_and_none() -> None:
    before = ("1-1-1", "addons.metrics-server={}")
    made = compared("1-1-1", "addons.metrics-server.resolution=60", before=before)
    was, shall = "metrics-server v0.9.0", "metrics-server v0.9.0, resolution=60"
    assert told(made) == [("changed", "add-on metrics-server", was, shall, "now")]
    assert [row.name for row in made.altered] == ["metrics-server"]
    made = compared("1-1-1", before=before)
    assert told(made) == [("removed", "add-on metrics-server", was, "", "now")]
    assert [row.name for row in made.dropped] == ["metrics-server"]


def test_a_second_pool_labels_the_nodes_of_the_first() -> None:
    made = compared("1-1-1", "linux_workers.count=1")
    assert ("changed", "node node-1: labels", "none", "winlab.internal/pool=node", "now") in told(made)
    assert {node.name for node in made.registered} == {"node-1", "controller-1"}


def test_nodes_keep_their_external_addresses_when_a_pool_before_them_grows() -> None:
    old = planned("1-1-1", "linux_workers.count=1")
    new = planned("1-3-1", "linux_workers.count=1", standing=(old,))
    assert new.node("linux-1").floating == old.node("linux-1").floating
    assert [row.kind for row in changes([old], new).every] == ["added", "added"]
    every = new.external_addresses
    assert len(set(every)) == len(every)
    again = planned("1-1-1", "linux_workers.count=1", standing=(new,))
    assert again.digest == old.digest, "what was added and taken away again left a trace"


def test_a_removed_node_s_address_is_given_again() -> None:
    old = planned("1-2-1", "linux_workers.count=1")
    fewer = planned("1-1-1", "linux_workers.count=1", standing=(old,))
    more = planned("1-1-1", "linux_workers.count=2", standing=(fewer,))
    assert more.node("linux-1").floating == old.node("linux-1").floating
    assert more.node("linux-2").floating == old.node("node-2").floating


def test_a_lab_that_outgrows_its_block_continues_in_the_next() -> None:
    old = planned("1-14-1")
    new = planned("1-40-1", standing=(old,))
    assert new.network.router_external == old.network.router_external
    assert not changes([old], new).refused


def test_a_change_that_was_interrupted_is_compared_with_both_plans() -> None:
    old = planned("1-1-1")
    half = planned("1-2-1", "workers.memory=4GiB", "addons.metrics-server={}", standing=(old,))
    back = changes([old, half], planned("1-1-1", standing=(old, half)))
    assert [row.what for row in back.every] == [
        "node node-2",
        "node node-1: memory",
        "add-on metrics-server",
    ]
    on = changes([old, half], planned("1-2-1", "workers.memory=4GiB", "addons.metrics-server={}", standing=(old, half)))
    assert [(row.kind, row.what) for row in on.every] == [
        ("added", "node node-2"),
        ("changed", "node node-1: memory"),
        ("added", "add-on metrics-server"),
    ]


def test_a_half_made_node_does_not_become_another_system() -> None:
    old = planned("1-1-1")
    half = planned("1-1-1", "linux_workers.count=1", standing=(old,))
    other = planned("1-1-1", "linux_workers.count=1", "linux_workers.os=ubuntu-24.04", standing=(old, half))
    made: Any = changes([old, half], other).refused
    assert [row.what for row in made] == ["node linux-1: system"]
