"""Injected faults are recorded before they take effect, found again, and forgotten when they are cleared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import pytest
from lab_fakes import machine
from sites import FakeSite, hypervisor

from winlab.adapters.vm import domains
from winlab.adapters.vm import faults as adapter
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Silent
from winlab.design import fault
from winlab.design.contract import on_both
from winlab.design.contract.call import Call
from winlab.design.contract.on_both import Changed, Faults
from winlab.design.fault.base import SwitchRule
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.tags import Tag
from winlab.engine import lab_on_site
from winlab.errors import GuestError, HostError, NotFoundError, UnreachableError, UsageError
from winlab.events import Event, Note, ignore
from winlab.host import firewall
from winlab.lab_folder import LabFolder
from winlab.operations import faults, room


class World:
    """A lab whose domains, rows and nodes are dictionaries."""

    def __init__(self) -> None:
        self.states = {"controller-1": "running", "node-1": "running"}
        self.records: dict[str, list[Any]] = {name: [] for name in self.states}
        self.rows: dict[str, tuple[str, Sequence[SwitchRule]]] = {}
        self.calls: list[tuple[str, Faults]] = []
        self.failure: Exception | None = None
        self.no_login: Exception | None = None
        self.stranger = False  # whether another account made the lab
        self.required: list[str] = []  # before a machine resumes: the firewall, room for these
        self.seen: list[Any] = []  # what was recorded when a node was called
        self.silent: tuple[Silent, ...] = ()

    @property
    def machines(self) -> list[Machine]:
        systems = {"controller-1": "linux", "node-1": "windows"}
        return [machine(name, systems[name], state) for name, state in self.states.items()]

    # -- OVN

    def fault_records(self, _lab: str) -> list[str]:
        return [record for record, _ in self.rows.values()]

    def put_fault(self, _lab: str, one: str, record: str, rules: Sequence[SwitchRule]) -> bool:
        self.rows.pop(one, None)
        if rules:
            self.rows[one] = record, rules
        return True

    def pod_routes(self, _lab: str) -> dict[str, str]:
        return {"10.244.1.0/24": "10.77.0.2"}

    def await_followers(self, _seconds: float, chassis: str) -> None:
        assert chassis == "here"  # another hypervisor may be off

    # -- the lab

    def add(self, kind: str, *nodes: str, **settings: object) -> None:
        faults.add("lab", self.site, fault.make(kind, nodes, **settings), ignore)

    def clear(self, which: str = "") -> list[str]:
        return [one.id for one in faults.clear("lab", self.site, which, ignore)]

    @property
    def active(self) -> list[str]:
        return [one.id for one in faults.active("lab", self.site)]

    @property
    def site(self) -> FakeSite:
        made = FakeSite(hypervisor(facts=MachineFacts(chassis="here")), overlay=self)
        made.each = replace(made.each, silent=self.silent)
        return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()

    def node_of(one: domains.Machine) -> str:
        return one.tag.node

    def set_state(state: str) -> Any:
        return lambda _conn, one: made.states.update({node_of(one): state})

    class NodeScripts:
        def __init__(self, tag: Tag, folder: LabFolder, scale: float, log_in: object = None) -> None:
            self.tag = tag

        def __enter__(self) -> NodeScripts:
            return self

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            pass

        def execute(self, command: list[str], stdin: bytes = b"") -> str:
            if made.no_login is not None:
                raise made.no_login
            return ""

        def run(self, call: Call[Any], heard: object = None) -> Changed:
            assert isinstance(call, Faults)
            call.settings(self.tag.os)
            made.seen = list(made.records[self.tag.node])
            if made.failure is not None:
                raise made.failure
            made.calls.append((self.tag.node, call))
            return Changed(changed=True)

    def write(_conn: object, one: domains.Machine, _lab: str, values: Sequence[Any]) -> None:
        made.records[node_of(one)] = json.loads(json.dumps(list(values)))

    def credentials(_folder: LabFolder) -> None:
        if made.stranger:
            raise NotFoundError("The credentials of the lab 'lab' are not in this account.")

    monkeypatch.setattr(LabFolder, "credentials", credentials)
    monkeypatch.setattr(domains, "machines", lambda _conn, _lab=None: made.machines)
    monkeypatch.setattr(domains, "state", lambda _conn, one: made.states[node_of(one)])
    monkeypatch.setattr(adapter, "records", lambda _conn, one: made.records[node_of(one)])
    monkeypatch.setattr(adapter, "write_records", write)
    monkeypatch.setattr(adapter, "card", lambda _conn, one: (f"mac of {node_of(one)}", node_of(one)))
    monkeypatch.setattr(faults, "BEGIN", {"off": set_state("off"), "suspended": set_state("suspended")})
    monkeypatch.setattr(faults, "END", {"off": set_state("running"), "suspended": set_state("running")})
    monkeypatch.setattr(lab_on_site, "NodeScripts", NodeScripts)
    monkeypatch.setattr(firewall, "require", lambda _progress: made.required.append("firewall"))
    monkeypatch.setattr(room, "require", lambda _conn, machines: made.required.extend(one.tag.node for one in machines))
    return made


def test_a_partition_is_in_ovn_alone(world: World) -> None:
    world.add("partition", "node-1", "controller-1")
    assert world.active == ["partition.controller-1.node-1"]
    assert (world.calls, any(world.records.values())) == ([], False)
    assert world.clear() == ["partition.controller-1.node-1"]
    assert world.rows == {}


@pytest.mark.parametrize(
    ("kind", "nodes", "settings"),
    [
        ("partition", ["node-1"], {}),
        ("partition", ["node-1", "controller-1"], {}),
        ("bandwidth", ["node-1"], {"mbit": 10}),
        ("loss", ["node-1"], {"percent": 20}),
        ("disk", ["node-1"], {}),
    ],
)
def test_only_faults_of_machines_do_not_need_all_hypervisors(
    world: World, kind: str, nodes: list[str], settings: dict[str, object]
) -> None:
    """A partition from all others left out the nodes on a hypervisor that did not answer."""
    world.silent = (Silent("hypervisor-2", HostError("libvirt does not answer.")),)
    with pytest.raises(HostError, match="'hypervisor-2' does not answer, and the lab 'lab' may have machines there"):
        world.add(kind, *nodes, **settings)
    assert (world.rows, world.calls, any(world.records.values())) == ({}, [], False)
    world.add("kill", "node-1")
    assert world.active == ["kill.node-1"]


def test_faults_of_one_node_are_called_together(world: World) -> None:
    world.add("clock", "node-1", skew="+2h")
    world.add("disk", "node-1", free="50MiB")
    ((_, first), (name, second)) = world.calls
    assert (first.skew, first.free) == (7200, None)
    assert (name, second.skew, second.free) == ("node-1", 7200, 50 << 20)
    assert world.clear("clock.node-1") == ["clock.node-1"]
    assert (world.calls[-1][1].skew, world.calls[-1][1].free) == (None, 50 << 20)
    assert world.active == ["disk.node-1"]


def test_the_same_fault_again_changes_it(world: World) -> None:
    world.add("clock", "node-1", skew="+2h")
    world.add("clock", "node-1", skew="-1h")
    assert world.active == ["clock.node-1"]
    assert world.calls[-1][1].skew == -3600


def test_packets_of_a_windows_node_are_lost_at_its_peer(world: World) -> None:
    world.add("loss", "node-1", percent=20)
    ((name, call),) = world.calls
    assert (name, call.links) == (
        "controller-1",
        [on_both.LinkFault(mac="mac of node-1", addresses=["10.77.0.2", "1.2.3.4", "10.244.1.0/24"], loss=20)],
    )
    assert world.active == ["loss.node-1"]
    assert world.clear("node-1") == ["loss.node-1"]
    assert world.calls[-1] == ("controller-1", Faults(now=world.calls[-1][1].now))
    assert world.active == []


def test_a_fault_is_recorded_before_it_is_done(world: World) -> None:
    world.add("disk", "node-1")
    assert [row["kind"] for row in world.seen] == ["disk"]
    world.clear()
    assert [row["kind"] for row in world.seen] == ["disk"]  # and forgotten after it is undone


def test_a_refused_fault_is_not_recorded(world: World) -> None:
    world.add("disk", "node-1")
    world.failure = GuestError("the script failed")
    with pytest.raises(GuestError):
        world.add("clock", "node-1", skew="+2h")
    assert world.active == ["disk.node-1"]


def test_a_fault_that_may_be_active_stays_recorded_as_unfinished(world: World) -> None:
    world.failure = UnreachableError("the connection was lost")
    with pytest.raises(GuestError):
        world.add("clock", "node-1", skew="+2h")
    (one,) = faults.active("lab", world.site)
    assert (one.label, one.settings) == ("clock.node-1 (unfinished)", {"skew": 7200})
    said: list[Event] = []
    faults.report("lab", world.site, world.site.each, said.append)
    (note,) = said
    assert isinstance(note, Note)
    assert note.text.startswith("Injected faults are active: clock.node-1 (unfinished).")
    world.failure = None
    world.add("clock", "node-1", skew="+2h")
    (one,) = faults.active("lab", world.site)
    assert one.label == "clock.node-1"


def test_a_fault_is_unfinished_until_it_is_done(world: World) -> None:
    """Also if winlab is killed meanwhile."""
    world.add("disk", "node-1")
    assert [row["unfinished"] for row in world.seen] == [True]
    assert "unfinished" not in world.records["node-1"][0]


@pytest.mark.parametrize(("kind", "settings"), [("clock", {"skew": "+2h"}), ("loss", {"percent": 5})])
def test_an_account_without_credentials_leaves_no_record(world: World, kind: str, settings: dict[str, Any]) -> None:
    """ux N2: the owner's status said that the clock is wrong, which it was not."""
    world.stranger = True
    with pytest.raises(NotFoundError, match="not in this account"):
        world.add(kind, "node-1", **settings)
    assert (world.active, world.calls, any(world.records.values())) == ([], [], False)
    world.add("freeze", "node-1")  # libvirt does it
    assert world.active == ["freeze.node-1"]


@pytest.mark.parametrize("failure", [UnreachableError("no answer"), GuestError("refused"), NotFoundError("no key")])
def test_a_fault_in_a_node_without_a_login_is_not_recorded(world: World, failure: Exception) -> None:
    world.no_login = failure
    with pytest.raises(type(failure)):
        world.add("disk", "node-1")
    assert (world.active, world.seen) == ([], [])


def test_clear_says_that_it_does_not_wait_until_nodes_are_ready(world: World) -> None:
    """ux N7: kubectl shows NotReady for a minute."""
    told: list[Event] = []
    world.add("kill", "node-1")
    world.add("disk", "controller-1")
    faults.clear("lab", world.site, "controller-1", told.append)
    assert not [one for one in told if isinstance(one, Note)]
    faults.clear("lab", world.site, "node-1", told.append)
    (note,) = [one for one in told if isinstance(one, Note)]
    assert "does not wait until nodes are Ready (node-1)" in note.text


def test_a_frozen_node_resumes_and_then_its_other_faults_end(world: World) -> None:
    world.add("disk", "node-1")
    world.add("freeze", "node-1")
    assert world.states["node-1"] == "suspended"
    world.add("freeze", "node-1")  # again: the fault is already active
    assert world.active == ["disk.node-1", "freeze.node-1"]
    with pytest.raises(GuestError, match="suspended"):
        world.add("clock", "node-1", skew="+2h")
    assert (world.clear("controller-1"), world.required) == ([], [])
    assert world.clear() == ["disk.node-1", "freeze.node-1"]
    assert world.states["node-1"] == "running"
    assert world.required == ["firewall", "node-1"]
    assert world.calls[-1][1].free is None
    assert world.active == []


def test_a_node_that_was_started_manually_has_no_fault_any_more(world: World) -> None:
    world.add("kill", "node-1")
    assert world.active == ["kill.node-1"]
    world.states["node-1"] = "running"
    assert world.active == []
    world.add("freeze", "node-1")
    assert [row["kind"] for row in world.records["node-1"]] == ["freeze"]


def test_a_node_that_is_off_for_another_reason_is_not_killed(world: World) -> None:
    world.states["node-1"] = "shutting down"
    with pytest.raises(GuestError, match="shutting down"):
        world.add("kill", "node-1")
    assert world.records["node-1"] == []


def test_a_failure_of_one_node_does_not_keep_faults_of_others(world: World) -> None:
    world.add("disk", "node-1")
    world.add("partition", "node-1")
    world.failure = GuestError("the script failed")
    with pytest.raises(GuestError, match="the script failed"):
        world.clear()
    assert world.active == ["disk.node-1"]


def test_unknown_names_are_refused_before_anything_is_touched(world: World) -> None:
    with pytest.raises(NotFoundError, match="no node 'node-9'"):
        world.add("kill", "node-9")
    with pytest.raises(NotFoundError, match=r"no fault or node 'kill\.node-1'"):
        world.clear("kill.node-1")
    assert world.clear("node-1") == []
    with pytest.raises(UsageError):
        world.add("loss", "node-1", "node-1", percent=1)
    assert not any(world.records.values())


def test_malformed_records_are_skipped(world: World) -> None:
    world.records["node-1"] = ["x", {"kind": "partition", "nodes": ["node-1"]}, {"kind": "disk", "nodes": ["node-1"]}]
    world.rows = {"a": ("no JSON", ()), "b": (json.dumps({"kind": "kill", "nodes": ["node-1"]}), ())}
    assert world.active == ["disk.node-1"]


def test_other_commands_say_that_there_are_faults(world: World) -> None:
    said: list[Event] = []
    faults.report("lab", world.site, world.site.each, said.append)
    assert said == []
    world.add("partition", "node-1")
    faults.report("lab", world.site, world.site.each, said.append)
    (note,) = said
    assert isinstance(note, Note)
    assert "partition.node-1" in note.text
    assert "winlab fault clear --lab lab" in note.text
