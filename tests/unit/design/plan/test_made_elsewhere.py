"""Nodes that are made again on another hypervisor: where they go, what changes, and which host may have their port."""

from __future__ import annotations

import pytest
from placing import host, hosts, plan, where

from winlab.design.plan.changes import changes
from winlab.design.plan.placement import FOUND
from winlab.design.render.topology import topology
from winlab.errors import HostError, UsageError

SPREAD = ("1-2-2", "workers.memory=2GiB", "controllers.memory=2GiB")
BEFORE = plan(*SPREAD, at=hosts(16, 16))


def test_a_node_goes_where_the_user_says_and_the_others_stay() -> None:
    assert where(BEFORE)["node-1"] == "hypervisor-2"
    after = plan(*SPREAD, at=hosts(16, 16, 16), standing=(BEFORE,), again={"node-1": "hypervisor-1"})
    assert where(after) == {**where(BEFORE), "node-1": "hypervisor-1"}
    assert after.placed["node-1"] == "pinned by --on"


def test_nodes_of_a_forgotten_hypervisor_are_placed_again() -> None:
    lost = {name: "" for name, at in where(BEFORE).items() if at == "hypervisor-2"}
    after = plan("1-2-1", *SPREAD[1:], at=hosts(16), standing=(BEFORE,), again=lost)
    assert set(where(after).values()) == {"hypervisor-1"}
    assert "hypervisor-2" not in after.hosts


@pytest.mark.parametrize(
    ("on", "changed", "error", "says"),
    [
        ("hypervisor-9", (), UsageError, "--on: the site has no hypervisor 'hypervisor-9'"),
        ("hypervisor-1", ("workers.hypervisor=hypervisor-2",), UsageError, "the spec has 'node-1' on 'hypervisor-2'"),
    ],
)
def test_a_choice_that_can_t_be(on: str, changed: tuple[str, ...], error: type[Exception], says: str) -> None:
    before = plan(*SPREAD, *changed, at=hosts(16, 16))
    with pytest.raises(error, match=says):
        plan(*SPREAD, *changed, at=hosts(16, 16), standing=(before,), again={"node-1": on})


def test_a_hypervisor_without_room_is_refused_unless_the_node_is_there_already() -> None:
    """A rebuild that was interrupted has made it, and its memory is no longer free."""
    full = host("hypervisor-1", 1)
    again = {"node-1": "hypervisor-1"}
    with pytest.raises(HostError, match="'node-1' can't be on 'hypervisor-1', as --on says"):
        plan(*SPREAD, at=(full, host("hypervisor-2")), standing=(BEFORE,), again=again)
    made = full.model_copy(update={"nodes": frozenset({"node-1"})})
    after = plan(*SPREAD, at=(made, host("hypervisor-2")), standing=(BEFORE,), again=again)
    assert after.placed["node-1"] == FOUND


def test_only_a_node_that_is_made_again_may_be_elsewhere() -> None:
    after = plan(*SPREAD, at=hosts(16, 16), standing=(BEFORE,), again={"node-1": "hypervisor-1"})
    allowed = changes((BEFORE,), after, ("node-1",))
    assert [node.name for node in allowed.moved] == ["node-1"]
    assert allowed.refused == ()
    (refused,) = changes((BEFORE,), after).refused
    assert refused.what == "node node-1: hypervisor"


def test_a_port_names_the_only_host_that_may_have_it() -> None:
    named = {port.name: dict(port.options).get("requested-chassis") for port in topology(BEFORE).ports}
    for node in BEFORE.nodes:
        assert named[node.port] == node.hypervisor  # the fake hosts' chassis are called like them
    alone = plan("1-1-1", at=())
    assert not any(dict(port.options).get("requested-chassis") for port in topology(alone).ports)
