"""Which hypervisor each node is on, and why; and what is refused before anything starts."""

from __future__ import annotations

import random
from typing import Any

import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from placing import GIB, LINUX, host, hosts, plan, where

from winlab.design import spec
from winlab.design.plan import placement
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.node_plan import LinuxNode, VolumePlan
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.errors import HostError, UsageError, WinlabError

# -- a site with one hypervisor


def test_a_site_with_one_hypervisor_has_the_plans_that_it_had() -> None:
    made = plans.make(plans.KVM, "3-2-1")
    text = made.model_dump_json()
    assert all(f'"{word}"' not in text for word in ("hosts", "placed", "tunnel_mtu"))
    assert set(where(made).values()) == {HYPERVISOR}
    assert made.hypervisors == {HYPERVISOR: plans.KVM.machine}


def test_pinning_to_the_only_hypervisor_changes_nothing() -> None:
    pinned = plans.make(plans.KVM, "1-1-1", f"workers.hypervisor={HYPERVISOR}", "controllers.apart=true")
    assert pinned.model_dump_json() == plans.make(plans.KVM).model_dump_json()


@pytest.mark.parametrize("at", [(), hosts(16)])
def test_more_hypervisors_than_the_site_has(at: tuple[HostStock, ...]) -> None:
    with pytest.raises(HostError, match="use 2 hypervisors, and the site has 1: hypervisor-1") as caught:
        plan("1-1-2", at=at)
    assert "winlab hypervisor add" in caught.value.cure
    assert "--set hypervisors=1" in caught.value.cure


@pytest.mark.parametrize("at", [(), hosts(16, 16)])
def test_an_unknown_hypervisor(at: tuple[HostStock, ...]) -> None:
    with pytest.raises(UsageError, match=r"workers\.node\.hypervisor: the site has no hypervisor 'big'"):
        plan("1-1-1", "workers.hypervisor=big", at=at)
    with pytest.raises(UsageError, match=r"controllers\.hypervisor: the site has no"):
        plan("1-1-1", "controllers.hypervisor=big", at=at)
    with pytest.raises(UsageError, match=r"linux_workers\.hypervisor: the site has no"):
        plan("1-0-1", "linux_workers.count=1", "linux_workers.hypervisor=big", at=at)


# -- the lab's hypervisors


def test_a_lab_on_one_hypervisor_is_where_its_router_is() -> None:
    made = plan("1-2-1", at=hosts(16, 30))
    assert set(where(made).values()) == {HYPERVISOR}
    assert set(made.placed.values()) == {placement.NEAR}
    assert made.network.mtu == 1500
    assert made.digest == plans.make(plans.KVM, "1-2-1", *LINUX).digest


def test_a_lab_on_one_hypervisor_that_lacks_room_is_elsewhere() -> None:
    made = plan("1-2-1", at=hosts(4, 20, 24))
    assert set(where(made).values()) == {"hypervisor-3"}
    assert made.placed["controller-1"] == "most free memory: 24.0 of 32.0 GiB"
    assert made.network.mtu == 1442


def test_the_lab_uses_as_many_as_it_says() -> None:
    for count in (1, 2, 3, 4):
        assert len(set(where(plan(f"3-4-{count}", at=hosts(20, 30, 20, 20, 20))).values())) == count


def test_a_large_hypervisor_leaves_nodes_to_the_others() -> None:
    assert set(where(plan("1-2-3", at=hosts(8, 30, 8))).values()) == {"hypervisor-1", "hypervisor-2", "hypervisor-3"}


# -- nodes


def test_controllers_are_spread() -> None:
    made = plan("3-0-3", at=hosts(30, 16, 16))
    assert len(set(where(made).values())) == 3
    assert made.placed["controller-2"].startswith("apart from controller-1; ")
    assert made.placed["controller-3"] == "apart from controller-1, controller-2"
    five = plan("5-0-2", at=hosts(30, 16))
    assert sorted(map(list(where(five).values()).count, set(where(five).values()))) == [2, 3]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ({"free_mib": 30 * GIB}, "most free memory: 30.0 of 32.0 GiB"),
        ({"bases": True}, "has the image debian-13 already"),
        ({"promised_cpus": 0}, "fewest CPUs for its cores: 0 on 8"),
        ({"pool_free": 300 << 30}, "most space in its pool: 300 GiB"),
    ],
)
def test_why_the_second_one(second: dict[str, Any], why: str) -> None:
    if "bases" in second:
        second = {"bases": frozenset([plans.make(plans.KVM, "1-0-1").nodes[0].volume("base").name])}
    usual = {"free_mib": 20 * GIB, "promised_cpus": 4}
    made = plan("1-1-2", at=(host("hypervisor-1", **usual), host("hypervisor-2", **{**usual, **second})))
    assert (where(made)["controller-1"], made.placed["controller-1"]) == ("hypervisor-2", why)


def test_equal_hypervisors_are_taken_in_their_order() -> None:
    made = plan("1-1-2", at=hosts(16, 16))
    assert made.placed["controller-1"] == "the first of equal hypervisors"
    assert where(made)["controller-1"] == HYPERVISOR


def test_what_is_promised_is_not_free() -> None:
    made = plan("1-1-2", at=(host("hypervisor-1", 24, promised_mib=20 * GIB), host("hypervisor-2", 16)))
    assert where(made)["controller-1"] == "hypervisor-2"


def test_pins() -> None:
    made = plan("1-3-2", "workers.hypervisor=hypervisor-2", at=hosts(30, 12))
    assert {where(made)[f"node-{number}"] for number in (1, 2, 3)} == {"hypervisor-2"}
    assert made.placed["node-1"] == "pinned by workers.node.hypervisor"
    assert where(made)["controller-1"] == HYPERVISOR


def test_apart() -> None:
    made = plan("1-3-3", "workers.apart=true", at=hosts(30, 16, 16))
    assert len({where(made)[f"node-{number}"] for number in (1, 2, 3)}) == 3
    assert made.placed["node-3"] == "apart from node-1, node-2"


# -- refusals


def test_a_full_site_is_named_with_what_each_has() -> None:
    silent = HostStock(name="hypervisor-3", trouble="no route to host")
    with pytest.raises(HostError) as caught:
        plan("1-1-2", at=(*hosts(16, 1), silent))
    text = str(caught.value)
    assert "use 2 of the site's hypervisors, and only 1 of them can" in text
    assert "hypervisor-1: 16.0 of 32.0 GiB of memory free" in text
    assert "hypervisor-3: does not answer: no route to host" in text


@pytest.mark.parametrize(
    "second",
    [
        host("hypervisor-2", 1),
        host("hypervisor-2", pool_free=4 << 30),
        HostStock(name="hypervisor-2", trouble="it is off"),
    ],
)
def test_a_pin_to_a_hypervisor_that_can_not(second: HostStock) -> None:
    with pytest.raises(HostError, match=r"'node-1' can't be on 'hypervisor-2', as workers\.node\.hypervisor says"):
        plan("1-1-2", "workers.hypervisor=hypervisor-2", at=(host("hypervisor-1"), second))


def test_one_node_that_fits_nowhere() -> None:
    with pytest.raises(HostError, match="No hypervisor of the lab has room for 'node-1'"):
        plan("1-1-2", "workers.memory=20GiB", at=hosts(16, 16))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (["workers.apart=true"], "workers.apart: 3 nodes that are apart need as many hypervisors"),
        (["controllers.count=3", "controllers.apart=true"], "controllers.apart: 3 nodes"),
        (["workers.apart=true", "workers.hypervisor=x", "hypervisors=3"], "can't be apart on one hypervisor"),
        (["workers.hypervisor=x", "controllers.hypervisor=y"], "the spec names y, x, which is more than 1"),
        (["workers.hypervisor=A/B"], "workers.hypervisor"),
        (["hypervisors=5"], "hypervisors: 4 nodes can't use 5 hypervisors"),
    ],
)
def test_specs_that_contradict_themselves(changed: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        spec.load("1-3-1", changed)
    assert says in str(caught.value)


def test_a_spec_without_what_it_says_about_hypervisors() -> None:
    wanted = spec.load("1-3-3", ["workers.apart=true", "controllers.hypervisor=big"])
    assert wanted.on_one_host() == spec.load("1-3-1")


# -- each node's own host


def test_each_domain_is_of_its_own_host() -> None:
    slow = host("hypervisor-2", facts=MachineFacts(accelerator="tcg", datapath="netdev", emulator_version="7.2.0"))
    made = plan("1-1-2", "workers.hypervisor=hypervisor-2", at=(*hosts(20), slow))
    files = folder.files(made, expand)
    kinds = {node.name: files[f"{node.name}/domain.xml"].split(b"type=", 1)[1][:6] for node in made.nodes}
    assert kinds == {"controller-1": b'"kvm">', "node-1": b'"qemu"'}
    assert all(b'<mtu size="1442"/>' in files[f"{name}/domain.xml"] for name in kinds)
    assert b'"mtu": 1442' in files["node-1/seed/network-config"]


# -- any site


@st.composite
def sites(draw: st.DrawFn) -> tuple[tuple[HostStock, ...], int, int, int]:
    numbers = st.integers(0, 40)
    found = tuple(
        host(f"hypervisor-{number}", draw(numbers), promised_mib=draw(numbers) * GIB, promised_cpus=draw(numbers),
             pool_free=draw(numbers) << 30, trouble=draw(st.sampled_from(["", "", "off"])))
        for number in range(1, draw(st.integers(1, 6)) + 1)
    )  # fmt: skip
    return found, draw(st.sampled_from([1, 3, 5])), draw(st.integers(0, 8)), draw(st.integers(1, 4))


@settings(max_examples=60, deadline=None)
@given(sites())
def test_no_hypervisor_gets_more_than_it_has(site: tuple[tuple[HostStock, ...], int, int, int]) -> None:
    found, controllers, workers, count = site
    try:
        wanted = spec.load(f"{controllers}-{workers}-{count}", LINUX)
        nodes = plans.make(plans.KVM, f"{controllers}-{workers}-1", *LINUX).nodes
        placed = placement.place(wanted, nodes, found)
    except WinlabError:  # it does not fit: the tests above
        return
    assert placed == placement.place(wanted, nodes, found)
    assert len({one.host for one in placed.values()}) <= count
    for one in found:
        there = [node for node in nodes if placed[node.name].host == one.name]
        assert sum(node.memory_mib for node in there) <= one.free_mib
        assert not (there and one.trouble)
    assert all(one.why for one in placed.values())


def test_many_nodes_on_many_hypervisors() -> None:
    """As many as the scale figures of docs/benchmarks.md: a plan's own limits on names and addresses are lower."""
    random.seed(7)
    wanted = spec.load("1-49-50", LINUX)
    (first, *_) = plans.make(plans.KVM, "1-0-1").nodes
    nodes = [
        LinuxNode(**{**first.model_dump(), "name": f"node-{number}", "pool": "node" if number else "",
                     "memory_mib": random.choice([1024, 2048, 4096]),
                     "volumes": (VolumePlan(name=f"base-{number % 7}", role="base", format="qcow2"),)})
        for number in range(900)
    ]  # fmt: skip
    site = [host(f"hypervisor-{number}", 64, memory_mib=96 * GIB, pool_free=9000 << 30) for number in range(1, 51)]
    placed = placement.place(wanted, nodes, site)
    assert len({one.host for one in placed.values()}) == 50
