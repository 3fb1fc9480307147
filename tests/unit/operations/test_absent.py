"""A hypervisor that does not answer: what only looks continues, what needs it fails at once."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import commands
import lab_fakes
import plans
import pytest
import sites

from winlab import Lab
from winlab.adapters import traces
from winlab.adapters.kube import kubeconfig
from winlab.adapters.left import LEFT, Left
from winlab.adapters.vm import connection, domains, pushed, resources
from winlab.adapters.vm.hypervisor import Hypervisors, Silent
from winlab.design import spec
from winlab.design.plan import tags
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.errors import HostError, NotFoundError, WinlabError
from winlab.events import Event, Note, ignore
from winlab.operations import (
    absent,
    apply,
    carry_out,
    destroy,
    diff,
    elsewhere,
    forget,
    look,
    making,
    move_note,
    recorded,
    remains,
)
from winlab.operations.carry_out import Job
from winlab.operations.lab_hosts import HostStatus
from winlab.operations.move_note import MoveNote
from winlab.operations.planning import Proposal
from winlab.operations.snapshot import delete as deletion
from winlab.steps.power import clock

SECOND = "hypervisor-2"
OFF = Silent(SECOND, HostError("libvirt does not answer.", why="No route to host"))


def split() -> Plan:
    """A lab with its second worker on the second hypervisor."""
    plan = plans.make(plans.KVM, "1-2-1")
    moved = [one.model_copy(update={"hypervisor": SECOND}) if one.name == "node-2" else one for one in plan.nodes]
    return plan.model_copy(update={"nodes": tuple(moved)})


SPLIT, WHOLE = split(), plans.make(plans.KVM, "1-2-1")


class Pool:
    def refresh(self) -> None:
        pass

    def names(self, _prefix: str = "") -> list[str]:
        return []


class World(sites.FakeSite):
    """Two hypervisors; the second does not answer."""

    def __init__(self) -> None:
        self.nb = sites.Recorder()
        overlay = SimpleNamespace(
            labs=set, remove=lambda _: False, lab_owner=lambda _: None, lab_plan=lambda _: None,
            fault_records=lambda _: [], hypervisors=dict, records=self.nb.records, record=self.nb.record,
        )  # fmt: skip
        super().__init__(sites.hypervisor("first", Pool()), overlay=overlay)
        self._facts = sites.facts()
        self.each = replace(self.each, silent=(OFF,))
        self.silent = (OFF,)
        self.machines: list[Any] = []

    def has(self, plan: Plan, *nodes: str) -> None:
        self.machines = [
            domains.Machine(one.domain, "running", tags.of(plan, one)) for one in plan.nodes if one.name in nodes
        ]

    def made_from(self, plan: Plan) -> None:
        wanted = spec.load("1-2-1")
        recorded.write(self.folder("lab"), Proposal(wanted, plan, Stock()))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(domains, "machines", lambda _conn, lab: [one for one in made.machines if lab in (None, "lab")])
    return made


def power(world: World, *nodes: str) -> list[str]:
    return carry_out.carry_out(Job("lab", lambda _: ["done"], must_exist=True, nodes=nodes), world, ignore)


def test_a_lab_that_has_no_machine_there_needs_it_not(world: World) -> None:
    world.made_from(WHOLE)
    world.has(WHOLE, "controller-1", "node-1", "node-2")
    assert power(world) == ["done"]


def test_a_lab_that_has_one_there_needs_it_unless_other_nodes_are_named(world: World) -> None:
    world.made_from(SPLIT)
    world.has(SPLIT, "controller-1", "node-1")
    for nodes in ((), ("node-2",), ("node-1", "node-2")):
        with pytest.raises(HostError, match=f"'{SECOND}' does not answer, and the lab 'lab' has machines") as caught:
            power(world, *nodes)
        assert "No route to host" in caught.value.why
    told: list[Event] = []
    assert carry_out.carry_out(Job("lab", lambda _: "done", must_exist=True, nodes=["node-1"]), world, told.append)
    assert [one.text for one in told if isinstance(one, Note)] == [f"{OFF} It is not needed now."]


def test_another_account_s_lab_may_have_some_there(world: World) -> None:
    world.has(WHOLE, "controller-1", "node-1")
    with pytest.raises(HostError, match="may have machines there"):
        power(world)
    assert power(world, "node-1") == ["done"]


def test_a_lab_that_is_not_found_may_be_there(world: World) -> None:
    with pytest.raises(HostError, match="may have machines there"):
        power(world)
    with pytest.raises(NotFoundError, match="on the hypervisors that answer") as caught:
        look.find("lab", world.each)
    assert SECOND in caught.value.why
    look.require_lab("lab", world)
    world.has(WHOLE, "node-1")
    with pytest.raises(NotFoundError, match="no node 'node-9' on the hypervisors that answer"):
        look.find_node("lab", "node-9", world.each)


def test_status_shows_the_nodes_there_as_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.made_from(SPLIT)
    world.has(SPLIT, "controller-1", "node-1")
    monkeypatch.setattr(clock, "skew", lambda *_: 0.0)
    monkeypatch.setattr(pushed, "read", lambda *_: [])
    monkeypatch.setattr(look, "_ask", lambda machine, *_: look.NodeStatus(machine.tag, machine.state, True))
    found = look.status("lab", world)
    assert [(one.tag.node, one.state, one.answers) for one in found] == [
        ("controller-1", "running", True), ("node-1", "running", True), ("node-2", "unknown", None),
    ]  # fmt: skip
    assert found[-1].problem == str(OFF)
    world.machines = []
    assert [one.state for one in look.status("lab", world)] == ["unknown"]


def test_status_has_the_hosts_of_a_lab_on_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def node(name: str, host: str, state: str = "running", problem: str = "") -> look.NodeStatus:
        tag = tags.of(SPLIT, SPLIT.node(name))
        return look.NodeStatus(tag, state, None, problem, hypervisor=host)

    monkeypatch.setattr(connection, "capacity", lambda _: (4, 8192))
    monkeypatch.setattr(resources, "free_memory_mib", lambda _: 1024)
    first, second = node("controller-1", "hypervisor-1"), node("node-2", SECOND, look.UNKNOWN, str(OFF))
    lost = node("node-1", "hypervisor-3", look.LOST, "It was forgotten.")
    assert Lab("lab", world).hypervisors([first]) == []
    assert Lab("lab", world).hypervisors([lost, second, first]) == [
        HostStatus("hypervisor-1", "answers", ("controller-1",), 8192, 1024),
        HostStatus(SECOND, "unknown", ("node-2",), problem=str(OFF)),
        HostStatus("hypervisor-3", "lost", ("node-1",), problem="It was forgotten."),
    ]
    assert Lab("lab", world).hypervisors([second, first], ask=False) == [
        HostStatus("hypervisor-1", "answers", ("controller-1",)),
        HostStatus(SECOND, "unknown", ("node-2",), problem=str(OFF)),
    ]


def test_create_and_apply_fail_before_they_touch_anything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "tag_of", lambda *_: None)
    with pytest.raises(HostError, match=f"'{SECOND}' does not answer, and '.*node-2' is on"):
        making.refuse_taken_names([SPLIT], world.each)
    making.refuse_taken_names([WHOLE], world.each)
    world.made_from(SPLIT)
    with pytest.raises(HostError, match="the lab 'lab' has machines there"):
        diff.compare(SPLIT, world, world.each)


@pytest.fixture
def removable(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(traces, "remove", lambda *_: [])
    monkeypatch.setattr(kubeconfig, "forget", lambda _: False)
    return world


@pytest.mark.parametrize(("plan", "says"), [(SPLIT, "still has node-2 of"), (None, "may still have machines of")])
def test_destroy_remembers_what_it_leaves_there(removable: World, plan: Plan | None, says: str) -> None:
    if plan is not None:
        removable.made_from(plan)
    told: list[Event] = []
    destroy.destroy("lab", removable, told.append)
    assert [one.text for one in told if isinstance(one, Note)] == [f"{removable.left()[0]} {OFF}"]
    assert says in str(removable.left()[0])
    assert not removable.folder("lab").path.exists()


def test_destroy_remembers_where_a_node_was_being_moved_to(removable: World) -> None:
    removable.made_from(WHOLE)
    folder = removable.folder("lab")
    note = MoveNote(node="node-2", source="hypervisor-1", target=SECOND, cold=False, ran=False, autostart=False)
    move_note.write(folder, note)
    destroy.destroy("lab", removable, ignore)
    assert [one.hypervisor for one in removable.left()] == [SECOND]
    assert not folder.path.exists()


def test_what_can_t_be_remembered_stays_in_the_record(removable: World, monkeypatch: pytest.MonkeyPatch) -> None:
    removable.made_from(SPLIT)

    def fail(_texts: Any) -> None:
        raise HostError("OVN rejected a change.")

    monkeypatch.setattr(removable.northbound, "record", fail)
    with pytest.raises(HostError, match="rejected"):
        destroy.destroy("lab", removable, ignore)
    assert removable.folder("lab").path.exists()


def test_destroy_fails_if_the_hypervisors_are_not_known(removable: World) -> None:
    removable.made_from(SPLIT)
    removable.each = replace(removable.each, silent=(replace(OFF, name=""),))
    with pytest.raises(HostError, match="'lab' has machines there") as caught:
        destroy.destroy("lab", removable, ignore)
    assert "The rest was removed" in caught.value.why
    assert "winlab destroy --lab lab" in caught.value.cure


def back(world: World) -> None:
    """The second hypervisor answers again, with all machines that it had."""
    left = tuple(one for one in world.left() if one.hypervisor == SECOND)
    second = replace(sites.hypervisor("second", Pool(), name=SECOND), left=left)
    world.each = replace(world.each, each=(*world.each.each, second), silent=())


@pytest.fixture
def removed(removable: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the domains that were removed."""
    found: list[str] = []

    def machines(conn: Any, lab: str | None = None) -> list[Any]:
        there = removable.machines if conn == "second" else []
        return [one for one in there if lab in (None, one.tag.lab)]

    monkeypatch.setattr(domains, "machines", machines)
    monkeypatch.setattr(domains, "remove", lambda _, one: found.append(one.domain) or True)
    return found


def test_any_command_that_changes_a_lab_removes_what_was_left(removable: World, removed: list[str]) -> None:
    removable.made_from(SPLIT)
    destroy.destroy("lab", removable, ignore)
    removable.has(SPLIT, "node-2")
    back(removable)
    assert removable.each.machines() == []  # it counts as the lab's no longer
    assert destroy.destroy("other", removable, ignore) == []
    assert removed == ["winlab-lab.node-2"]
    assert removable.left() == ()


def test_a_second_destroy_reports_what_was_left(removable: World, removed: list[str]) -> None:
    removable.made_from(SPLIT)
    destroy.destroy("lab", removable, ignore)
    removable.has(SPLIT, "node-2")
    back(removable)
    assert destroy.destroy("lab", removable, ignore) == ["domain winlab-lab.node-2"]


def test_only_the_node_that_was_made_again_elsewhere_is_removed(removable: World, removed: list[str]) -> None:
    remains.remember(removable, Left(hypervisor=SECOND, lab="lab", nodes=("node-1",)))
    remains.remember(removable, Left(hypervisor=SECOND, lab="lab", nodes=("node-2",)))
    removable.has(SPLIT, "controller-1", "node-2")
    back(removable)
    assert [one.tag.node for one in removable.each.machines("lab")] == ["controller-1"]
    hosts, gone = remains.clean(removable, removable.each, ignore, "lab")
    assert (gone, removed) == (["domain winlab-lab.node-2"], ["winlab-lab.node-2"])
    assert hosts.each[1].left == ()


def test_what_another_winlab_has_removed_meanwhile_is_left_alone(removable: World, removed: list[str]) -> None:
    remains.remember(removable, Left(hypervisor=SECOND, lab="lab", nodes=("node-2",)))
    removable.has(SPLIT, "node-2")
    back(removable)
    removable.nb.others.clear()
    assert remains.clean(removable, removable.each, ignore, "lab")[1] == removed == []


def test_another_host_of_the_same_name_is_not_cleaned(removable: World, removed: list[str]) -> None:
    removable.nb.texts[SECOND] = sites.record("host2", chassis="c2")
    removable.northbound.hypervisors = removable.nb.hypervisors
    removable.has(SPLIT, "node-2")
    for chassis, gone in (("c3", []), ("c2", ["winlab-lab.node-2"])):
        remains.remember(removable, Left(hypervisor=SECOND, lab="lab", whole=True))
        second = sites.hypervisor("second", Pool(), name=SECOND, facts=MachineFacts(chassis=chassis))
        remains.clean(removable, Hypervisors((replace(second, left=removable.left()),)), ignore, "lab")
        assert (removed, removable.left()) == (gone, ())


def test_it_looks_again_before_it_removes_what_each_lab_left(
    removable: World, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remains.remember(removable, Left(hypervisor=SECOND, lab="a", whole=True))
    remains.remember(removable, Left(hypervisor=SECOND, lab="lab", whole=True))
    removable.has(SPLIT, "node-2")  # another winlab made the lab again
    back(removable)
    monkeypatch.setattr(removable.northbound, "record", lambda _texts: removable.nb.others.clear())
    assert remains.clean(removable, removable.each, ignore, "a")[1] == removed == []


def test_what_can_t_be_removed_stops_only_its_own_lab(
    removable: World, removed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_conn: Any, _machine: Any) -> bool:
        raise WinlabError("libvirt refuses.")

    remains.remember(removable, Left(hypervisor=SECOND, lab="lab", nodes=("node-2",)))
    removable.has(SPLIT, "node-2")
    back(removable)
    monkeypatch.setattr(domains, "remove", fail)
    told: list[Event] = []
    hosts, _ = remains.clean(removable, removable.each, told.append, "other")
    assert len(hosts.each[1].left) == len(removable.left()) == 1
    assert [one.text for one in told if isinstance(one, Note)] == [
        f"What 'lab' left on '{SECOND}' can't be removed now: libvirt refuses."
    ]
    with pytest.raises(WinlabError, match="refuses"):
        remains.clean(removable, removable.each, ignore, "lab")


def test_what_others_wrote_is_not_believed() -> None:
    text = Left(nodes=("node-2",)).model_dump_json()
    assert Left.parse(f"{LEFT}{SECOND}/lab", text) is not None
    for key in (
        f"{LEFT}hypervisor-1/lab",
        f"{LEFT}{SECOND}",
        f"{LEFT}{SECOND}/a/b",
        f"{LEFT}X/lab",
        f"{LEFT}{SECOND}/ ",
    ):
        assert Left.parse(key, text) is None
    for bad in ("", "[]", "{", '{"nodes": ["../x"]}', '{"nodes": 3}', " " * 5000):
        assert Left.parse(f"{LEFT}{SECOND}/lab", bad) is None


def test_destroy_ends_with_a_code_of_its_own_if_something_is_left(
    removable: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("winlab.lab", "winlab.lab.base"):
        monkeypatch.setattr(f"{module}.Site", lambda: removable)
    removable.made_from(SPLIT)
    done = commands.ran("destroy")
    assert (done.exit_code, "as far as it could be reached" in done.stdout) == (20, True)
    assert f"'{SECOND}' still has node-2 of the lab 'lab'" in done.stdout
    assert f"'{SECOND}' still has node-2" in commands.ran("list").stdout
    removable.nb.others.clear()
    removable.each = replace(removable.each, silent=())
    assert commands.ran("destroy").exit_code == 0


def test_a_node_that_is_off_after_a_reboot_of_its_host(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.made_from(WHOLE)
    world.has(WHOLE, "controller-1", "node-1")
    world.machines = [replace(one, state="off") for one in world.machines]
    monkeypatch.setattr(clock, "skew", lambda *_: 0.0)
    monkeypatch.setattr(pushed, "read", lambda *_: [])
    monkeypatch.setattr(domains, "is_unexplained", lambda _, one: one.tag.node == "node-1")
    assert [one.problem for one in look.status("lab", world)] == ["", look.REBOOTED]


def test_nodes_of_a_forgotten_hypervisor_are_lost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.made_from(SPLIT)
    world.has(SPLIT, "controller-1", "node-1")
    world.each = replace(world.each, silent=())
    world.nb.others[f"{forget.FORGOTTEN}{SECOND}"] = ""
    monkeypatch.setattr(clock, "skew", lambda *_: 0.0)
    monkeypatch.setattr(pushed, "read", lambda *_: [])
    monkeypatch.setattr(look, "_ask", lambda machine, *_: look.NodeStatus(machine.tag, machine.state, True))
    assert power(world) == ["done"]  # nothing waits for it
    lost = look.status("lab", world)[-1]
    assert (lost.tag.node, lost.state, lost.hypervisor) == ("node-2", "lost", SECOND)
    assert "winlab repair --lab lab" in lost.problem
    told: list[Event] = []
    (drift,) = elsewhere.rebuild_lost("lab", world, told.append, check=True)
    assert (drift.node, drift.expected, drift.actual, drift.repairable) == ("node-2", SECOND, "forgotten", True)
    assert elsewhere.rebuild_lost("lab", World(), ignore, check=True) == []


def test_nodes_of_a_hypervisor_that_was_only_removed_may_run(removable: World) -> None:
    removable.made_from(SPLIT)
    removable.each, removable.silent = replace(removable.each, silent=()), ()
    (status,) = look.status("lab", removable)
    assert (status.tag.node, status.state) == ("node-2", "unknown")
    assert "was removed from the list" in status.problem
    with pytest.raises(HostError, match="the lab 'lab' has machines there") as caught:
        power(removable)
    assert "hypervisor forget" in caught.value.cure
    assert elsewhere.rebuild_lost("lab", removable, ignore, check=False) == []
    removable.nb.others[f"{forget.REMOVED}{SECOND}"] = sites.record(chassis="c2")
    destroy.destroy("lab", removable, ignore)
    (left,) = removable.left()
    assert (left.hypervisor, left.nodes, left.whole, left.chassis) == (SECOND, ("node-2",), True, "c2")


def test_a_node_that_is_made_again_leaves_its_machine_on_a_hypervisor_that_was_removed(world: World) -> None:
    world.made_from(SPLIT)
    world.each = replace(world.each, silent=())
    held = recorded.read(world.folder("lab"))
    compared: Any = SimpleNamespace(held=held, changes=SimpleNamespace(moved=[WHOLE.node("node-2")]))
    apply._leave_old(WHOLE, compared, world, world.each)
    assert [(one.hypervisor, one.nodes, one.whole) for one in world.left()] == [(SECOND, ("node-2",), False)]


def test_nothing_is_made_again_at_a_site_that_never_had_the_hypervisor(world: World) -> None:
    world.made_from(SPLIT)
    world.each = replace(world.each, silent=())
    world._facts = sites.facts(southbound="")  # as after they were lost
    assert elsewhere.rebuild_lost("lab", world, ignore, check=False) == []


def test_destroy_of_a_lab_that_has_nothing_there_succeeds(removable: World) -> None:
    removable.made_from(WHOLE)
    destroy.destroy("lab", removable, ignore)
    assert not removable.folder("lab").path.exists()


def test_snapshots_of_copies_that_may_be_there_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("winlab.snapshots.ids", lambda: pytest.fail("it looked"))
    deletion.tidy("lab", world.each, ignore)


def test_golden_images_are_made_on_the_first_hypervisor(world: World) -> None:
    assert absent.of_lab("golden-x", world, world.each) == []
    assert absent.of_lab("lab", world, world.each) == [OFF]


def test_the_list_of_labs_says_what_is_missing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.has(WHOLE, "node-1")
    for module in ("winlab.lab", "winlab.lab.base"):
        monkeypatch.setattr(f"{module}.Site", lambda: world)

    def overlay() -> Any:
        raise HostError("OVN does not answer.")

    assert look.overview(world).unknown == (str(OFF),)
    done = commands.ran("list")
    assert (done.exit_code, done.stderr) == (20, f"{OFF}\n")
    monkeypatch.setattr(world, "overlay", overlay)
    done = commands.ran("list")
    assert (done.exit_code, done.stderr) == (20, f"{OFF}\nOVN does not answer.\n")
    assert "lab" in done.stdout
    monkeypatch.setattr(world, "overlay", lambda: nullcontext(world.northbound))
    world.each, world.silent = replace(world.each, silent=()), ()
    assert commands.ran("list").exit_code == 0
    assert lab_fakes.machine("node-1").hypervisor == "hypervisor-1"
