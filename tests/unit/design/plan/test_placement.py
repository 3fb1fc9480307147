"""Which hypervisor each node is on, and why; and what is refused before anything starts."""

from __future__ import annotations

import random
from typing import Any

import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winlab.design import spec
from winlab.design.plan import copied, golden, placement
from winlab.design.plan.changes import changes
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.make import make
from winlab.design.plan.model import LinuxNode, Plan, VolumePlan
from winlab.design.render import folder
from winlab.design.render.templates import expand
from winlab.errors import HostError, UsageError, WinlabError

GIB = 1024  # MiB
LINUX = ("workers.os=debian-13",)
SITE = plans.KVM.model_copy(update={"tunnel_mtu": 1442})


def host(name: str, free: int = 16, **changes: Any) -> HostStock:
    """A hypervisor with *free* of 32 GiB."""
    given: dict[str, Any] = {
        "facts": MachineFacts(chassis=name), "memory_mib": 32 * GIB, "free_mib": free * GIB, "cores": 8,
        "pool_free": 200 << 30,
    }  # fmt: skip
    return HostStock(name=name, **{**given, **changes})


def hosts(*free: int) -> tuple[HostStock, ...]:
    return tuple(host(f"hypervisor-{number}", gib) for number, gib in enumerate(free, 1))


def plan(source: str, *changed: str, at: tuple[HostStock, ...], standing: tuple[Plan, ...] = (), **more: Any) -> Plan:
    wanted = spec.load(source, [*LINUX, *changed])
    stock = plans.stock(wanted).model_copy(update={"hypervisors": at})
    return make(wanted, "lab", more.get("facts", SITE), stock, standing=standing)


def where(made: Plan) -> dict[str, str]:
    return {node.name: node.hypervisor for node in made.nodes}


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


def test_a_spec_without_hypervisors_makes_bundles_anywhere() -> None:
    wanted = spec.load("1-3-3", ["workers.apart=true", "controllers.hypervisor=big"])
    assert wanted.on_one_host() == spec.load("1-3-1")


# -- existing labs


def test_existing_nodes_stay() -> None:
    first = plan("3-2-3", at=hosts(20, 20, 20))
    again = plan("3-2-3", at=hosts(2, 3, 30), standing=(first,))
    assert where(again) == where(first)
    assert set(again.placed.values()) == {placement.RECORDED}
    assert (again.digest, changes([first], again).every) == (first.digest, ())


def test_a_lab_stays_where_it_is_while_a_host_is_silent_or_unknown() -> None:
    first = plan("3-2-3", at=hosts(20, 20, 20))
    off = HostStock(name="hypervisor-2", trouble="it is off")
    for at in ((*hosts(20), off, hosts(20, 20, 20)[2]), (*hosts(20), host("hypervisor-4")), hosts(20)):
        again = plan("3-2-3", at=at, standing=(first,))
        assert (again.digest, again.hosts) == (first.digest, first.hosts)


def test_a_new_node_can_not_be_on_a_hypervisor_that_is_gone() -> None:
    pin = "workers.hypervisor=hypervisor-2"
    first = plan("1-1-2", pin, at=hosts(20, 20))
    with pytest.raises(HostError, match="hypervisor-2: does not answer: the site no longer has it"):
        plan("1-2-2", pin, at=hosts(20), standing=(first,))


def test_new_nodes_of_an_existing_lab_are_placed() -> None:
    first = plan("1-1-2", at=hosts(20, 16))
    again = plan("1-2-2", at=hosts(6, 30), standing=(first,))
    assert where(again)["node-2"] == "hypervisor-2"
    assert [change.what for change in changes([first], again).every] == ["node node-2"]


def test_a_node_is_not_moved_by_another_pin() -> None:
    first = plan("1-1-2", "workers.hypervisor=hypervisor-1", at=hosts(20, 20))
    again = plan("1-1-2", "workers.hypervisor=hypervisor-2", at=hosts(20, 20), standing=(first,))
    (refused,) = changes([first], again).refused
    assert (refused.what, refused.before, refused.after) == ("node node-1: hypervisor", "hypervisor-1", "hypervisor-2")
    assert "a machine is not moved" in refused.why


def test_nodes_that_are_together_are_not_moved_apart() -> None:
    first = plan("1-2-2", "workers.hypervisor=hypervisor-1", at=hosts(20, 20))
    again = plan("1-2-2", "workers.apart=true", at=hosts(20, 20), standing=(first,))
    assert [change.what for change in changes([first], again).refused] == ["node node-2: hypervisor"]


def test_fewer_hypervisors_than_an_existing_lab_is_on() -> None:
    first = plan("3-0-3", at=hosts(20, 20, 20))
    with pytest.raises(UsageError, match="the lab's nodes are on 3 hypervisors, and 2 are to be used") as caught:
        plan("3-0-2", at=hosts(20, 20, 20), standing=(first,))
    assert "--set hypervisors=3" in caught.value.cure


def test_a_copy_is_where_its_origin_is() -> None:
    first = plan("1-1-2", at=hosts(20, 20))
    other = copied.plan_of(first, "other", 3)
    assert (where(other), other.hosts, other.network.mtu) == (where(first), first.hosts, first.network.mtu)
    assert other.placed["node-1"] == "beside the disks of 'lab'"


def test_a_recorded_plan_is_read_back() -> None:
    first = plan("1-1-2", at=hosts(20, 20))
    assert Plan.model_validate_json(first.model_dump_json()) == first


# -- the largest packet


def test_a_lab_over_tunnels_has_their_mtu() -> None:
    assert plan("1-1-2", at=hosts(20, 20)).network.mtu == 1442
    assert plan("1-1-2", "network.mtu=1400", at=hosts(20, 20)).network.mtu == 1400
    wide = SITE.model_copy(update={"tunnel_mtu": 8942})
    assert plan("1-1-2", at=hosts(20, 20), facts=wide).network.mtu == 1500


def test_a_larger_mtu_than_tunnels_take() -> None:
    with pytest.raises(UsageError, match=r"network\.mtu 1450 is larger than what tunnels") as caught:
        plan("1-1-2", "network.mtu=1450", at=hosts(20, 20))
    assert "--set network.mtu=1442" in caught.value.cure


def test_a_lab_keeps_its_mtu() -> None:
    first = plan("1-1-2", at=hosts(20, 20))
    wide = SITE.model_copy(update={"tunnel_mtu": 8942})
    assert plan("1-1-2", at=hosts(20, 20), facts=wide, standing=(first,)).digest == first.digest
    alone = plan("1-1-1", at=hosts(20, 20))
    with pytest.raises(UsageError, match=r"The lab's network\.mtu, 1500, is larger"):
        plan("1-2-2", at=hosts(8, 20), standing=(alone,))


def test_windows_pods_need_larger_packets_than_usual_tunnels_take() -> None:
    with pytest.raises(UsageError, match="Windows pods send packets of up to 1450 bytes") as caught:
        plan("1-1-2", "workers.os=windows-2022", at=hosts(20, 20))
    assert "docs/placement.md" in str(caught.value)
    assert plan("1-1-1", "workers.os=windows-2022", at=hosts(20, 30)).network.mtu == 1500


def test_a_golden_image_has_no_mtu_and_its_clones_have_the_labs() -> None:
    wide = SITE.model_copy(update={"tunnel_mtu": 1500})
    same = plan("1-1-2", "workers.os=windows-2022", at=hosts(20, 20), facts=wide)
    narrow = ("workers.os=windows-2022", "workers.cluster=false")
    other = plan("1-1-2", *narrow, at=hosts(20, 20))
    free = plan("1-1-2", *narrow, at=hosts(20, 20), facts=wide)
    assert other.nodes[1].windows is not None
    assert free.nodes[1].windows == other.nodes[1].windows  # the same golden image
    assert (free.network.mtu, other.network.mtu) == (1500, 1442)
    (builder,) = same.builders
    assert builder.nodes[0].hypervisor == HYPERVISOR  # also if the clones are elsewhere
    assert builder.hypervisors == {HYPERVISOR: same.hosts.get(HYPERVISOR, same.host.machine)}
    assert golden.LAB in builder.lab


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
