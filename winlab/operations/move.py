"""``winlab move``: a node of a lab gets another hypervisor, with its disks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Literal

from winlab.adapters.vm import domains, first_boot, migration, resources
from winlab.adapters.vm import power as machine_power
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.migration import Way
from winlab.design.plan import moved
from winlab.design.plan.facts import HYPERVISOR, HostFacts
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.sizes import human
from winlab.engine.durations import Forecast
from winlab.engine.step import Step
from winlab.errors import ConflictError, GuestError, HostError, NotFoundError, WinlabError
from winlab.events import Listener, Note
from winlab.host import facts as host_facts
from winlab.operations import look, move_note, power, recorded
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.move_note import MoveNote
from winlab.operations.recorded import Recorded
from winlab.site import Site
from winlab.steps import moves
from winlab.steps.moves import Move
from winlab.steps.power import shutdown
from winlab.steps.power.subject import Subject
from winlab.steps.states import MOVED

LIVE = ("running", "suspended")  # states in which a machine can move while it runs


@dataclass(frozen=True)
class Moved:
    """A node that was moved: from where, to where, how, and its state now. ``nothing``: it was there already."""

    lab: str
    node: str
    source: str
    target: str
    how: Literal["live", "cold", "nothing"]
    state: str


def move(lab: str, node: str, host: str, site: Site, tell: Listener, *, cold: bool = False) -> Moved:
    """Move a node to another hypervisor, while it runs if possible. Run again, it finishes what was interrupted.

    :param host: the hypervisor's name.
    :param cold: shut the node down for it.
    :raises NotFoundError: there is no such lab or node, or this account has no record of the lab.
    :raises ConflictError: the spec or the network does not let it, or its disks depend on others; nothing was touched.
    :raises HostError: a hypervisor does not answer or lacks room; nothing was touched.
    :raises WinlabError: the move failed, and is undone.
    """

    def work(under: Underway) -> Moved:
        return _Moving(under, lab, node, host, cold=cold).run()

    return carry_out(Job(lab, work, must_exist=True, nodes=[node], storage=True, moves=True), site, tell)


class _Moving:
    """One move, under the lab's lock."""

    def __init__(self, under: Underway, lab: str, node: str, host: str, *, cold: bool) -> None:
        self._under, self._lab, self._name, self._host, self._cold = under, lab, node, host, cold
        look.find_nodes(lab, [node], under.hypervisors)
        recorded.refuse_unfinished(under.folder)
        self._held = recorded.read(under.folder)
        self._note = move_note.read(under.folder)
        if self._note is not None and (self._note.node, self._note.target) != (node, host):
            raise move_note.interrupted(under.folder, self._note)
        self._node = planned(self._held, node)
        self._source_name = self._node.hypervisor if self._note is None else self._note.source

    def run(self) -> Moved:
        """Move it, or finish that."""
        if self._source_name == self._host:
            return self._moved("nothing", self._on(self._host))
        source, target = self._on(self._source_name), self._on(self._host)
        facts = self._facts(source.name), self._facts(target.name)
        first = self._under.site.host_facts
        plan = moved.plan(self._held.plan, self._name, self._host, facts[1].machine, first.machine)
        move = Move(self._under.lab, self._node, self._held.plan, plan, source, target)
        if self._note is not None:
            moves.recover(move, cold=self._note.cold)
        note = self._decide(move, facts) if self._note is None else self._note
        if self._note is None:
            move_note.write(self._under.folder, note)
        try:
            self._under.run(self._steps(move, note, facts[1]), "move")
        except WinlabError:
            with suppress(WinlabError):  # the note then stays, and the same command continues
                starts = note.ran and note.cold
                if moves.put_back(move, autostart=note.autostart, cold=note.cold, starts=starts):
                    move_note.remove(self._under.folder)
            raise
        if note.ran:
            self._bring_up()
        move_note.remove(self._under.folder)
        return self._moved("cold" if note.cold else "live", target)

    def _decide(self, move: Move, facts: tuple[HostFacts, HostFacts]) -> MoveNote:
        """How the node is moved, after all checks; nothing is touched.

        :raises WinlabError: it can't be moved.
        """
        source, target, node = move.source, move.target, self._node
        moved.require(self._held.spec, self._held.plan, node, target.name, self._under.site.host_facts)
        state = domains.state(source.conn, node)
        if state not in (*LIVE, *domains.OFF):
            raise GuestError(
                f"'{node.name}' is {state}, and can't be moved.",
                cure=f"'winlab status --lab {self._lab}' shows where it is. If it is there, stop or start it first.",
            )
        if first_boot.is_marked(source.conn, node):
            # seen once with TCG: a machine that moved while its boot loader ran hung in the kernel's early boot
            raise GuestError(
                f"The first boot of '{node.name}' is not complete.",
                cure="Run the lab's create command again: it finishes that. Then move the node.",
            )
        if migration.has_saved_memory(source, node):
            raise GuestError(
                f"'{node.name}' was saved with libvirt.", cure=f"Start it first: winlab start {node.name}."
            )
        found = moves.parts(source, node, self._lab)
        if source.pool.folder != target.pool.folder:
            raise HostError(f"The pools of '{source.name}' and '{target.name}' are in different folders.")
        if found.others:
            raise ConflictError(
                f"'{node.name}' can't be moved: it depends on {', '.join(found.others)}.",
                why="These belong to a snapshot, to another lab or to a user, and stay where they are.",
                cure="A copy of a lab depends on its snapshot. Create the lab again where you need it.",
            )
        moves.require_free(move, found)
        why = "snapshots depend on its disks" if found.frozen else ""
        why = why or moved.hinders((source.name, facts[0]), (target.name, facts[1]), f"{datetime.now(UTC):%Y-%m-%d}")
        runs = state in LIVE
        cold = self._cold or not runs or bool(why)
        _require_room(move, found, runs=runs)
        if cold and runs and not self._cold:
            self._under.tell(Note(lab=self._lab, text=f"'{node.name}' is shut down for the move, because {why}."))
        autostart = any(one.autostart for one in self._machines() if one.tag.node == node.name)
        return MoveNote(
            node=node.name, source=source.name, target=target.name, cold=cold, ran=cold and runs, autostart=autostart
        )

    def _steps(self, move: Move, note: MoveNote, there: HostFacts) -> list[Step]:
        record = partial(
            recorded.change, self._under.folder, move.plan, moved.spec(self._held.restored_spec(), move.plan)
        )
        steps = [moves.settle(move, record, autostart=note.autostart)]
        if move.is_over:
            return [Step(move.at(MOVED), lambda _: None, lambda: True), *steps]
        if note.autostart:  # a reboot of its host must not start it there again
            machine_power.set_autostart(move.source.conn, self._node, wanted=False)
        steps.append(moves.bring(move))
        if not note.cold and there.moves is not None:
            return [*steps, moves.live(move, Way(there.moves.address, there.chassis))]
        stops = domains.state(move.source.conn, self._node) not in domains.OFF
        if stops:
            (machine,) = look.find_nodes(self._lab, [self._name], self._under.hypervisors)
            steps.append(shutdown.step(Subject(self._under.lab, machine)))
        return [*steps, moves.cold(move, stops=stops)]

    def _bring_up(self) -> None:
        """Start the node at its new place, and wait until it is as before."""
        lab = self._under.lab
        (machine,) = look.find_nodes(self._lab, [self._name], self._under.hypervisors)
        subject = Subject(lab, machine)
        forecast = Forecast(lab.pace.known, recorded.standing(self._under.folder)[:1])
        power.bring_up([subject], lambda steps: self._under.run(forecast.steps(steps), "move"), self._under.tell)

    def _moved(self, how: Literal["live", "cold", "nothing"], host: Hypervisor) -> Moved:
        state = domains.state(host.conn, self._node)
        return Moved(self._lab, self._name, self._source_name, self._host, how, state)

    def _machines(self) -> list[domains.Machine]:
        return self._under.hypervisors.machines(self._lab)

    def _on(self, name: str) -> Hypervisor:
        for silent in self._under.hypervisors.silent:
            if silent.is_maybe(name):
                raise silent.refusal(f"and '{self._name}' is to move from '{self._source_name}' to '{self._host}'")
        return self._under.hypervisors.on(self._node.model_copy(update={"hypervisor": name}))

    def _facts(self, name: str) -> HostFacts:
        """What ``winlab host setup`` recorded on a host, as it is now."""
        remote = self._under.site.remote(name)
        if name == HYPERVISOR or remote is None:
            return self._under.site.host_facts
        return host_facts.read_facts_of(remote)


def planned(held: Recorded, node: str) -> NodePlan:
    """A node as its lab's record has it.

    :raises NotFoundError: the record does not have it.
    """
    try:
        return held.plan.node(node)
    except KeyError:
        lab = held.plan.lab
        raise NotFoundError(
            f"'{node}' is not in the record of the lab '{lab}'.", cure=f"Run 'winlab repair --lab {lab}' first."
        ) from None


def _require_room(move: Move, found: moves.Parts, *, runs: bool) -> None:
    """Check that the other host has the memory and the space that the node needs.

    :raises HostError: it has not.
    """
    needed = sum(move.source.pool.allocation(name) for name in found.own if move.source.pool.exists(name))
    needed += sum(move.source.pool.file_size(name) for name in found.bases if not move.target.pool.is_complete(name))
    if needed > (free := move.target.pool.free()):
        raise HostError(
            f"The pool of '{move.target.name}' has {free >> 20} MiB free, and '{move.node.name}' needs {needed >> 20}.",
            cure="Remove other labs or images there: 'winlab image prune'.",
        )
    memory, has = domains.memory_mib(move.source.conn, move.node), resources.free_memory_mib(move.target.conn)
    if runs and memory > has:
        raise HostError(
            f"'{move.node.name}' needs {human(memory)} of memory, and '{move.target.name}' has {human(has)} free.",
            cure="Stop other labs or programs there, or choose another hypervisor.",
        )
