"""Steps that move a node to another hypervisor, with its disks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from winlab.adapters.vm import carried, definitions, disks, domains, machine_xml, migration, power
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.migration import Way
from winlab.design.plan import volume_names
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain as domain_file
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.state import Kind, State
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError, HostError
from winlab.events import Progress
from winlab.steps.states import BROUGHT, MOVED, SETTLED, STOPPED

FOLLOWING = 10.0  # seconds in which OVN's controllers follow a change; a host that is off never does


@dataclass(frozen=True)
class Parts:
    """The volumes of a machine, each list in the order in which they are needed: what is below comes first.

    ``disks`` are those that it writes to, by name, with the lab's own volumes under each. ``read`` are volumes of the
    lab that it only reads. ``bases`` are shared with other labs. ``others`` belong to no lab's machine.
    """

    disks: dict[str, tuple[str, ...]]
    read: tuple[str, ...]
    bases: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """All that belong to the lab."""
        return (*(name for top, below in self.disks.items() for name in (*below, top)), *self.read)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The lab's own volumes under its disks: snapshots may need them."""
        return tuple(name for below in self.disks.values() for name in below)

    @classmethod
    def sort(cls, lab: str, chains: dict[tuple[str, ...], bool]) -> Parts:
        """Sort volumes.

        :param chains: each drive's volume and those under it, from above, and whether the machine writes to it.
        """
        writes, reads, bases, others = {}, dict[str, None](), dict[str, None](), dict[str, None]()
        for chain, written in chains.items():
            below = chain[::-1]
            bases |= dict.fromkeys(name for name in below if name.startswith("base-"))
            own = [name for name in below if volume_names.lab_of(name) == lab]
            others |= dict.fromkeys(name for name in below if name not in bases and name not in own)
            if written and own:
                writes[own[-1]] = tuple(own[:-1])
            else:
                reads |= dict.fromkeys(own)
        return cls(writes, tuple(reads), tuple(bases), tuple(others))


def parts(host: Hypervisor, node: NodePlan, lab: str) -> Parts:
    """The volumes of a machine, now and at its next start. Files outside the pool are among the others."""
    host.pool.refresh()
    chains: dict[tuple[str, ...], bool] = {}
    for xml in (definitions.persistent(host.conn, node), definitions.running(host.conn, node)):
        for disk in machine_xml.read(xml).disks.values() if xml else ():
            file = PurePath(disk.file)
            if disk.file and file.parent == host.pool.folder:
                written = disk.device == "disk" and volume_names.generation(file.name) > 0
                chains[tuple(disks.chain(host.pool, file.name))] = written
            elif disk.file:
                chains[disk.file,] = False
    return Parts.sort(lab, chains)


@dataclass(frozen=True)
class Move:
    """A node that moves.

    :param node: as it was planned where it is.
    :param before: the plan with the node there.
    :param plan: the plan with the node where it is moved to.
    """

    lab: LabOnSite
    node: NodePlan
    before: Plan
    plan: Plan
    source: Hypervisor
    target: Hypervisor

    def at(self, kind: Kind) -> State:
        """The node's state of this kind."""
        return kind(self.lab.name, self.node.name)

    def volumes(self, host: Hypervisor) -> list[str]:
        """The node's own volumes in a pool, as far as their names say so."""
        host.pool.refresh()
        prefix = f"{self.lab.name}.{self.node.name}."
        return [name for name in host.pool.names(prefix) if volume_names.node_of(name, self.lab.name) == self.node.name]

    @property
    def is_over(self) -> bool:
        """Whether the machine is at its new place alone."""
        return domains.find(self.source.conn, self.node) is None and not self.is_missing

    @property
    def is_missing(self) -> bool:
        """Whether it is not at its new place."""
        return domains.find(self.target.conn, self.node) is None

    def settle_port(self, host: Hypervisor, plan: Plan) -> None:
        """Leave the node's port as the network of a plan has it (:mod:`winlab.design.render.topology`)."""
        self.give_port(*([host] if plan.hosts else []))

    def give_port(self, *hosts: Hypervisor) -> None:
        """Give the node's port to hosts; none: to the one that has the machine."""
        with self.lab.overlay() as northbound:
            northbound.give_port(self.node.port, [host.facts.chassis for host in hosts])
            for host in hosts[-1:]:
                with suppress(HostError):  # this account may not ask, and another host is off
                    northbound.await_followers(FOLLOWING, host.facts.chassis)


def recover(move: Move, *, cold: bool) -> None:
    """Decide for one of two machines after a move was interrupted. What runs stays, or what ran last.

    Otherwise the source counts.

    :param cold: it was off for the move.
    :raises ConflictError: both run.
    :raises HostError: libvirt still moves it.
    """
    source, target, node = move.source, move.target, move.node
    if not (migration.await_idle(source, node) and migration.await_idle(target, node)):
        raise HostError(f"libvirt is still moving '{node.name}'.", cure="Run the same command again in a minute.")
    here, there = domains.state(source.conn, node), domains.state(target.conn, node)
    if "gone" in (here, there):
        return
    if here == there == "running":
        raise ConflictError(
            f"'{node.name}' runs on '{source.name}' and on '{target.name}'.",
            why="Something other than winlab started it. Each has its own disk, and both have the same addresses.",
            cure=f"Decide which one counts. On the host of the other, run 'virsh destroy {node.domain}' and 'virsh "
            f"undefine --nvram {node.domain}'. Then run the same command again.",
        )
    if there == "running" or (here != "running" and _has_run_there(move, cold=cold)):
        domains.remove(source.conn, node)
        return
    discard(move)
    if here == "paused":  # libvirt had stopped it for the last part of its memory
        power.resume(source.conn, node)


def _has_run_there(move: Move, *, cold: bool) -> bool:
    """Whether the machine moved while it ran, and has since stopped: its disks at the new place are the later ones."""
    return not cold and migration.has_arrived(move.target, move.node)


def discard(move: Move) -> None:
    """Remove what a move made at the new place."""
    domains.remove(move.target.conn, move.node)
    disks.collect(move.target, move.volumes(move.target))


def require_free(move: Move, found: Parts) -> None:
    """Check that nothing at the new place depends on a volume which has the name of one that the machine writes to.

    :raises ConflictError: something does.
    """
    for name in sorted(_held(move) & {*found.disks}):
        raise _taken(move, name)


def _held(move: Move) -> set[str]:
    """The node's volumes at the new place that something there depends on: it was there before, and was saved."""
    there = move.volumes(move.target)
    return {*there} - {*disks.unused(move.target, there)}


def _taken(move: Move, name: str) -> ConflictError:
    return ConflictError(
        f"'{move.node.name}' can't be moved to '{move.target.name}': a snapshot or a machine there needs '{name}'.",
        why="The node was there before. It has another volume of the same name now, which would replace that one.",
        cure=f"Delete the snapshots that have a part on '{move.target.name}', or choose another hypervisor.",
    )


def bring(move: Move) -> Step:
    """The step that brings images and CDs which other labs share."""
    found = parts(move.source, move.node, move.lab.name)

    def work(progress: Progress) -> None:
        with move.lab.folder.staging() as folder:
            for name in found.bases:
                carried.carry_base(name, move.source.pool, move.target.pool, folder, progress.say)

    def done() -> bool:
        return move.is_over or all(map(move.target.pool.is_complete, found.bases))

    return Step(move.at(BROUGHT), work, done, usual=5, load=Load.POOL)


def live(move: Move, way: Way) -> Step:
    """The step that moves a running machine."""

    def work(progress: Progress) -> None:
        discard(move)
        found = parts(move.source, move.node, move.lab.name)
        require_free(move, found)
        for name in found.disks:
            backing = move.source.pool.backing(name)
            capacity = move.source.pool.capacity(name)
            move.target.pool.create_disk(name, capacity >> 20, None if backing is None else backing.name)
            if move.target.pool.capacity(name) != capacity:
                raise ConflictError(
                    f"The disk '{name}' has a size that can't be made on '{move.target.name}'.",
                    cure="Run 'winlab move --cold'.",
                )
        _carry(move, found.read, progress)
        move.give_port(move.source, move.target)
        migration.live(
            move.source, move.target, move.node, way, lambda part: progress.say("its disks and its memory", part)
        )
        move.give_port(move.target)

    return Step(move.at(MOVED), work, lambda: move.is_over, [move.at(BROUGHT)], usual=15, load=Load.POOL)


def cold(move: Move, *, stops: bool) -> Step:
    """The step that moves a machine which is off.

    :param stops: another step shuts it down.
    """

    def work(progress: Progress) -> None:
        source, target, node = move.source, move.target, move.node
        if (state := domains.state(source.conn, node)) not in domains.OFF:
            raise ConflictError(f"'{node.name}' is {state}, not off.", cure="Run the same command again.")
        discard(move)
        found = parts(source, node, move.lab.name)
        require_free(move, found)
        _carry(move, found.own, progress)
        xml = definitions.with_secrets(source.conn, node)
        assert xml is not None
        rendered = domain_file.domain_xml(move.plan, move.plan.node(node.name), "", target.pool.folder)
        migration.define(target, node, machine_xml.rehosted(xml, rendered))
        progress.say("writing its disks")
        target.pool.flush()  # a power cut there must not take the only machine
        # as create_disk(): retire() deletes the marker before it looks for overlays
        if not all(map(target.pool.is_complete, found.bases)):
            raise ConflictError(
                f"An image that '{node.name}' is based on was removed from '{target.name}' meanwhile.",
                why="Another winlab is pruning images.",
                cure="Run the same command again: it brings the image again.",
            )
        domains.remove(source.conn, node)  # from here on it is at its new place

    after = [move.at(BROUGHT), *([move.at(STOPPED)] if stops else [])]
    return Step(move.at(MOVED), work, lambda: move.is_over, after, usual=15, load=Load.POOL)


def settle(move: Move, record: Callable[[], None], *, autostart: bool) -> Step:
    """The step that records where the machine is now, and removes what it left behind.

    :param record: records the plan.
    """

    def work(progress: Progress) -> None:
        record()
        power.set_autostart(move.target.conn, move.node, wanted=autostart)
        progress.say("writing its disks")
        move.target.pool.flush()
        progress.say("removing its old volumes")
        disks.collect(move.source, move.volumes(move.source))
        move.settle_port(move.target, move.plan)

    return Step(move.at(SETTLED), work, lambda: False, [move.at(MOVED)], usual=2)


def put_back(move: Move, *, autostart: bool, cold: bool, starts: bool) -> bool:
    """Undo what failed, if the machine is still where it was; returns whether it is.

    :param cold: it was off for the move.
    :param starts: it ran, and was shut down for the move.
    """
    node = move.node
    if domains.find(move.source.conn, node) is None or domains.state(move.target.conn, node) == "running":
        return False
    if domains.state(move.source.conn, node) != "running" and _has_run_there(move, cold=cold):
        return False
    discard(move)
    move.settle_port(move.source, move.before)
    power.set_autostart(move.source.conn, node, wanted=autostart)
    if starts and domains.state(move.source.conn, node) in domains.OFF:
        power.start(move.source.conn, node)
    return True


def _carry(move: Move, names: tuple[str, ...], progress: Progress) -> None:
    """Copy volumes that the target does not have, and what the machine has written to its serial port.

    :raises ConflictError: something at the target depends on another volume of the same name.
    """
    log = domain_file.serial_log(move.lab.name, move.node.name)
    there, held = set(move.target.pool.names()), _held(move)
    for name in _needed(move, (*names, log), there):
        if name in held:
            _require_same(move, name, progress)
        else:
            carried.carry(name, move.source.pool, move.target.pool, partial(progress.say, name))


def _require_same(move: Move, name: str, progress: Progress) -> None:
    """Check that the target has the same volume: a frozen disk, which it kept for a snapshot.

    :raises ConflictError: it has another one.
    """
    found = {host.pool.digest(name, partial(progress.say, f"comparing {name}")) for host in (move.source, move.target)}
    if len(found) > 1:
        raise _taken(move, name)


def _needed(move: Move, names: tuple[str, ...], there: set[str]) -> Iterator[str]:
    """Those that exist at the source; a CD for all nodes of the lab may be at the target already."""
    for name in names:
        shared = volume_names.node_of(name, move.lab.name) is None
        if move.source.pool.exists(name) and not (shared and name in there):
            yield name
