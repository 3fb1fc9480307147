"""Where the nodes of existing labs stay, and which MTU labs have and keep."""

from __future__ import annotations

import pytest
from placing import SITE, host, hosts, plan, where

from winlab.design.plan import copied, lab_name, placement
from winlab.design.plan.changes import changes
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.model import Plan
from winlab.errors import HostError, UsageError

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
    assert "'winlab move' moves it" in refused.why


def test_nodes_that_are_together_are_not_moved_apart() -> None:
    first = plan("1-2-2", "workers.hypervisor=hypervisor-1", at=hosts(20, 20))
    again = plan("1-2-2", "workers.apart=true", at=hosts(20, 20), standing=(first,))
    assert [change.what for change in changes([first], again).refused] == ["node node-2: hypervisor"]


def test_fewer_hypervisors_than_an_existing_lab_is_on() -> None:
    first = plan("3-0-3", at=hosts(20, 20, 20))
    with pytest.raises(UsageError, match="the lab's nodes are on 3 hypervisors, and 2 are to be used") as caught:
        plan("3-0-2", at=hosts(20, 20, 20), standing=(first,))
    assert "--set hypervisors=3" in caught.value.cure


def test_the_record_of_a_lab_of_which_nothing_was_made_can_be_removed() -> None:
    first = plan("1-1-2", at=hosts(20, 20))
    made = (host("hypervisor-1", nodes=frozenset(["controller-1"])), host("hypervisor-2"))
    for at, why, cure in (
        (hosts(20, 20), "no hypervisor that answers has anything of the lab", "winlab destroy --lab lab"),
        (made, "They are on hypervisor-1, hypervisor-2.", "move nodes first, with 'winlab move'"),
    ):
        with pytest.raises(UsageError, match="the lab's nodes are on 2 hypervisors, and 1 are to be used") as caught:
            plan("1-2-1", at=at, standing=(first,))
        assert why in str(caught.value)
        assert cure in caught.value.cure


def test_a_lab_on_more_hypervisors_than_its_spec_says_stays_as_it_is() -> None:
    first = plan("1-1-2", at=hosts(20, 20))
    there = (host("hypervisor-1", nodes=frozenset(["controller-1"])), host("hypervisor-2"))
    assert where(plan("1-1-1", at=there, standing=(first,))) == where(first)


def test_nodes_without_a_record_stay_where_they_were_found() -> None:
    first = plan("1-2-2", at=hosts(20, 20))
    there = {name: frozenset(one.name for one in first.nodes if one.hypervisor == name) for name in first.hosts}
    full = tuple(host(f"hypervisor-{number}", 1, nodes=there.get(f"hypervisor-{number}", ())) for number in (1, 2))
    again = plan("1-2-2", at=(*full, host("hypervisor-3", 30)))
    assert (again.digest, where(again)) == (first.digest, where(first))
    assert set(again.placed.values()) == {placement.FOUND}


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


def test_a_copy_of_another_site_s_lab_keeps_the_mtu_that_its_guests_have() -> None:
    """It is on one hypervisor, and its plan has no others: it was imported."""
    origin = plan("1-1-2", at=hosts(20, 20))
    nodes = tuple(node.model_copy(update={"hypervisor": "hypervisor-1"}) for node in origin.nodes)
    copy = copied.plan_of(origin.model_copy(update={"nodes": nodes, "hosts": {}, "placed": {}}), "lab", 7)
    again = plan("1-1-1", "network.floating_block=7", at=(), standing=(copy,))
    assert (copy.network.mtu, again.network.mtu) == (1442, 1442)


def test_a_lab_keeps_its_mtu_when_its_last_nodes_elsewhere_are_removed() -> None:
    first = plan("1-1-2", "workers.hypervisor=hypervisor-2", at=hosts(20, 20))
    less = plan("1-0-1", at=hosts(20, 20), standing=(first,))
    assert where(less) == {"controller-1": "hypervisor-1"}
    assert (less.network.mtu, changes([first], less).refused) == (1442, ())
    assert plan("1-0-1", at=hosts(20, 20), standing=(less,)).digest == less.digest
    assert plan("1-0-1", "network.mtu=1500", at=hosts(20, 20), standing=(less,)).network.mtu == 1500


def test_a_lab_that_uses_no_further_hypervisor_keeps_an_mtu_that_tunnels_no_longer_take() -> None:
    narrow = SITE.model_copy(update={"tunnel_mtu": 1392})
    for explicit in ((), ("network.mtu=1442",)):
        first = plan("1-1-2", *explicit, at=hosts(20, 20))
        assert plan("1-1-2", *explicit, at=hosts(20, 20, 30), facts=narrow, standing=(first,)).digest == first.digest
        more = plan("1-2-2", *explicit, at=hosts(20, 20, 30), facts=narrow, standing=(first,))
        assert (more.network.mtu, len(more.hosts)) == (1442, 2)
        with pytest.raises(UsageError, match=r"network\.mtu,? 1442,? is larger than what tunnels .* take \(1392\)"):
            plan("1-2-3", *explicit, at=hosts(20, 20, 30), facts=narrow, standing=(first,))
    with pytest.raises(UsageError, match=r"network\.mtu 1450 is larger"):
        plan("1-1-2", "network.mtu=1450", at=hosts(20, 20), standing=(plan("1-1-2", at=hosts(20, 20)),))


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
    assert lab_name.GOLDEN in builder.lab


# -- copies


def copies(count: int, at: tuple[HostStock, ...], share: float, on: str | None = None) -> list[dict[str, str]]:
    origin = plan("1-1-2", at=hosts(20, 20))
    shares = {node.name: share for node in origin.nodes}
    placed = placement.place_copies(origin, count, at, shares, on)
    return [{name: one.host for name, one in rows.items()} for rows in placed]


def test_copies_are_where_the_memory_is() -> None:
    assert where(plan("1-1-2", at=hosts(20, 20))) == {"controller-1": HYPERVISOR, "node-1": "hypervisor-2"}
    assert copies(3, hosts(20, 20, 90), 0.5) == [{}, {}, {}]


def test_copies_that_have_no_room_there_are_on_the_host_with_the_most_memory() -> None:
    """They need all of their memory there, and nothing is placed where something does not answer."""
    off = host("hypervisor-4", 90, trouble="it is off")
    assert copies(3, (*hosts(20, 1, 9), off), 0.5)[1:] == [{"node-1": HYPERVISOR}] * 2
    with pytest.raises(HostError, match="No hypervisor has room for a copy of 'node-1'"):
        copies(3, hosts(3, 1), 0.5)


def test_all_nodes_of_copies_are_where_the_user_says() -> None:
    both = {"controller-1": "hypervisor-3", "node-1": "hypervisor-3"}
    assert copies(2, hosts(20, 20, 20), 0.5, "hypervisor-3") == [both, both]
    assert copies(1, hosts(20, 20), 0.5, "hypervisor-2") == [{"controller-1": "hypervisor-2"}]
    with pytest.raises(HostError, match="'controller-1' can't be on 'hypervisor-3'"):
        copies(1, hosts(20, 20, 1), 0.5, "hypervisor-3")
