"""Save a lab: all its machines at one instant, with their memory if they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from winlab import snapshots
from winlab.adapters.kube import kubeconfig
from winlab.adapters.vm import disks, domains, first_boot, power
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan import volume_names
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import copied_domain
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError, GuestError, HostError
from winlab.events import Listener, Note, Progress
from winlab.operations import faults, recorded
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.snapshot import compatible, contents, memory, remains
from winlab.site import Site
from winlab.snapshots import Drive, Id, SavedNode, Snapshot
from winlab.steps.power import answer
from winlab.steps.power.subject import Subject
from winlab.steps.states import FLATTENED, SAVED, STORED
from winlab.threads import Threads
from winlab.version import __version__

T = TypeVar("T")

LONGEST = 8  # frozen disks below a disk, each of which QEMU keeps open


def save(which: Id, site: Site, tell: Listener, *, disks_only: bool = False, automatic: bool = False) -> Snapshot:
    """Save a lab. Its machines are paused for some seconds, and continue.

    :param disks_only: the lab is off, and only its disks are saved.
    :param automatic: nothing but copies needs the snapshot.
    :raises ConflictError: there is a snapshot of this name; or the lab is in no state to be saved. Nothing was touched.
    :raises HostError: there is not enough space. Nothing was touched.
    :raises WinlabError: it could not be saved. The lab is as before.
    """

    def work(under: Underway) -> Snapshot:
        return _Saving(which, under, disks_only=disks_only, automatic=automatic).run()

    return carry_out(Job(which.lab, work, must_exist=True, storage=True), site, tell)


@dataclass
class _Saving:
    """A save that is under way."""

    which: Id
    under: Underway
    disks_only: bool
    automatic: bool
    paused: float = 0.0
    nodes: dict[str, SavedNode] = field(default_factory=dict)

    def run(self) -> Snapshot:
        under, which, hosts = self.under, self.which, self.under.hypervisors
        with snapshots.exclusive(which) as mark:
            remains.require_free(which, hosts, mark)
            if mark.was_killed:
                self._resume()
            with remains.making(which, hosts, mark):
                held = recorded.read(under.folder)
                recorded.refuse_unfinished(under.folder)
                self._require_savable(held.plan)
                for host in hosts:  # overlays that a killed save made for machines that are off
                    if mark.was_killed:
                        disks.collect(host, disks.of_lab(host.pool, which.lab))
                drives = {node.name: self._drives(node) for node in held.plan.nodes}
                under.run(self._steps(held.plan, drives), "snapshot save")
                made = self._record(held)
                # no record must survive a power cut without its volumes
                _each(_used(hosts, held.plan), lambda host: host.pool.flush())
                snapshots.write(made)
        return made

    def _resume(self) -> None:
        """Let the machines run that a killed save paused."""
        lab, hosts = self.which.lab, self.under.hypervisors
        if paused := [one.tag.node for one in hosts.machines(lab) if machines.end_save(hosts.on(one).conn, one)]:
            text = f"A save was killed while the lab was paused. These run again: {', '.join(paused)}."
            self.under.tell(Note(lab=lab, text=text))

    def _record(self, held: recorded.Recorded) -> Snapshot:
        folder, plan, hosts = self.under.folder, held.plan, self.under.hypervisors
        emulators = {host.name: compatible.emulator(host) for host in _used(hosts, plan)}
        first, nodes = emulators[plan.nodes[0].hypervisor], {}
        for node in plan.nodes:
            own = emulators[node.hypervisor]
            nodes[node.name] = self.nodes[node.name].model_copy(update={"emulator": None if own == first else own})
        return Snapshot(
            lab=self.which.lab,
            name=self.which.name,
            made=datetime.now(UTC),
            made_by=__version__,
            memory=not self.disks_only,
            paused=round(self.paused, 2),
            automatic=self.automatic,
            emulator=first,
            nodes=nodes,
            routes=self._routes(),
            plan=held.plan,
            spec=held.restored_spec(),
            roots=held.roots,
            credentials=folder.credentials(),
            kubeconfig=kubeconfig.read(folder) if folder.has(folder.kubeconfig) else None,
            kubectl=folder.kubectl.resolve() if folder.has(folder.kubectl) else None,
        )

    def _require_savable(self, plan: Plan) -> None:
        """Check the state of the lab.

        :raises ConflictError: it has faults, nodes that booted only partly, or nodes in an external cluster.
        :raises GuestError: its machines do not all run, or, for disks alone, are not all off.
        :raises HostError: there is not enough space.
        """
        hosts, lab = self.under.hypervisors, self.which.lab
        if plan.joins:
            raise ConflictError(
                f"The lab '{lab}' can't be saved: its nodes joined an external cluster.",
                why="A cluster whose nodes return to an earlier state, or exist twice, is damaged.",
                cure="Save a lab that has its own cluster.",
            )
        if active := faults.active(lab, self.under.site):
            raise ConflictError(
                f"The lab '{lab}' has injected faults: {', '.join(one.label for one in active)}.",
                cure=f"End them with 'winlab fault clear --lab {lab}', then save it.",
            )
        states = {node.name: domains.state(hosts.on(node).conn, node) for node in plan.nodes}
        wanted = "off" if self.disks_only else "running"
        if wrong := {name: state for name, state in states.items() if state != wanted}:
            said = ", ".join(f"{name} is {state}" for name, state in wrong.items())
            cure = (
                f"Stop it with 'winlab stop --lab {lab}'; or leave out --disks-only, which saves the running lab."
                if self.disks_only
                else f"Start it with 'winlab start --lab {lab}'; a lab that is off is saved with --disks-only."
            )
            raise GuestError(f"The lab '{lab}' can't be saved: {said}.", cure=cure)
        if booting := [node.name for node in plan.nodes if first_boot.is_marked(hosts.on(node).conn, node)]:
            raise ConflictError(
                f"The lab '{lab}' can't be saved: {', '.join(booting)} did not complete the first boot.",
                cure="Run the lab's create command again, then save it.",
            )
        if not self.disks_only:
            self._require_space(plan)

    def _require_space(self, plan: Plan) -> None:
        """Check the pools' space. The memory is written twice at most: as libvirt writes it, and as it is kept.

        :raises HostError: it is not enough.
        """
        for host in self.under.hypervisors:
            need = 2 * sum(node.memory_mib for node in plan.nodes if node.hypervisor == host.name) << 20
            if need > (free := host.pool.free()):
                where = "the pool" if host.name == HYPERVISOR else f"the pool of '{host.name}'"
                raise HostError(
                    f"The lab '{self.which.lab}' can't be saved: {where} has {free >> 20} MiB free.",
                    why=f"Machines there have {need >> 21} MiB of memory, which may take {need >> 20} MiB meanwhile.",
                    cure="Free some space: 'winlab image prune' removes what nothing needs; 'winlab snapshot list' "
                    "shows what snapshots take.",
                )

    def _drives(self, node: NodePlan) -> dict[str, Drive]:
        host = self.under.hypervisors.on(node)
        return contents.drives(self.which, host, node, machines.definition(host.conn, node))

    def _routes(self) -> dict[str, str]:
        with self.under.site.overlay() as northbound:
            return northbound.pod_routes(self.which.lab)

    def _steps(self, plan: Plan, drives: dict[str, dict[str, Drive]]) -> Sequence[Step]:
        lab = self.which.lab

        def never() -> bool:
            return False  # an interrupted save starts over

        def freeze(progress: Progress) -> None:
            for node in plan.nodes if not self.disks_only else ():
                self._settle(node, drives[node.name], progress)
            progress.say("CDs and seeds")
            for node in plan.nodes:
                contents.keep_shared(self.under.hypervisors.on(node), drives[node.name])
            self._freeze(plan, drives, progress)

        saved = SAVED(lab, of=self.which.name)
        steps = [Step(saved, freeze, never, usual=10)]
        for node in plan.nodes:
            store = self._storing(node, drives[node.name])
            stored = STORED(lab, node.name, of=self.which.name)
            steps.append(Step(stored, store, never, [saved], usual=5, load=Load.POOL))
            if not self.disks_only:
                flatten = self._flattening(node, drives[node.name])
                steps.append(Step(FLATTENED(lab, node.name), flatten, never, [stored]))
        if self.disks_only:
            return steps
        standing = self.under.lab
        for machine in standing.machines():
            clock = answer.step(Subject(standing, machine))  # it stood still for the length of the pause
            steps.append(Step(clock.reaches, clock.run, clock.done, [saved], usual=2))
        return steps

    def _settle(self, node: NodePlan, drives: dict[str, Drive], progress: Progress) -> None:
        """Wait until nothing copies the disks of a running node any more: an earlier save may have begun that."""
        for target, drive in drives.items():
            if drive.kind == "disk":
                text = f"copying the files below {target} of {node.name} into its own"
                conn = self.under.hypervisors.on(node).conn
                machines.settle(conn, node, target, lambda part: progress.say(text, part))  # noqa: B023

    def _freeze(self, plan: Plan, drives: dict[str, dict[str, Drive]], progress: Progress) -> None:
        """Save the machines, and let their disks continue in overlays. All of them are at the same instant.

        None runs again before all are paused, on whichever hypervisors they are. So none has in its memory what
        another one sent after it was paused.
        """
        overlays: dict[str, dict[str, str]] = {}
        for node in plan.nodes:
            host = self.under.hypervisors.on(node)
            written = {target: drive for target, drive in drives[node.name].items() if drive.kind == "disk"}
            overlays[node.name] = {
                target: disks.next_free(host.pool, f"{plan.lab}.{drive.what}") for target, drive in written.items()
            }
        if self.disks_only:
            for node in plan.nodes:
                self._redirect(node, overlays[node.name])
            return

        def save_one(node: NodePlan) -> None:
            host = self.under.hypervisors.on(node)
            pool = host.pool.folder
            files = {target: pool / name for target, name in overlays[node.name].items()}
            machines.save(host.conn, node, pool / self.which.volume(node.name, "save"), files)

        begun = time.monotonic()
        try:
            _each(plan.nodes, lambda node: power.suspend(self.under.hypervisors.on(node).conn, node))
            progress.say(f"the memory of {len(plan.nodes)} machines, which are paused")
            _each(plan.nodes, save_one)
        finally:
            _each(plan.nodes, lambda node: power.resume(self.under.hypervisors.on(node).conn, node))
            self.paused = time.monotonic() - begun
        for host in self.under.hypervisors:
            host.pool.refresh()  # libvirt made the overlays and images beside its list of volumes

    def _redirect(self, node: NodePlan, overlays: dict[str, str]) -> None:
        """Let the disks of a machine that is off continue in overlays."""
        host = self.under.hypervisors.on(node)
        definition = machines.definition(host.conn, node)
        frozen = copied_domain.drives(definition)
        for target, name in overlays.items():
            host.pool.create_overlay(name, Path(frozen[target]).name)
        files = {target: host.pool.path(name) for target, name in overlays.items()}
        machines.define(host.conn, node, copied_domain.redirected(definition, files))

    def _storing(self, node: NodePlan, drives: dict[str, Drive]) -> Callable[[Progress], None]:
        """Keep the frozen disks of a node, and its memory as copies need it."""

        def work(progress: Progress) -> None:
            host = self.under.hypervisors.on(node)
            definition = machines.definition(host.conn, node)
            files = copied_domain.drives(definition)
            for target, drive in drives.items():
                if drive.kind == "disk":
                    frozen = host.pool.backing(Path(files[target]).name)
                    assert frozen is not None
                    host.pool.create_overlay(drive.volume, frozen.name)
            stored = None
            if self.disks_only:
                host.pool.write(self.which.volume(node.name, "xml"), definition.encode())
            else:
                stored = memory.store(host.pool, self.which, node, progress)
            self.nodes[node.name] = SavedNode(
                drives=drives,
                memory_mib=node.memory_mib,
                split=stored and stored.split,
                sample=stored and stored.sample,
            )

        return work

    def _flattening(self, node: NodePlan, drives: dict[str, Drive]) -> Callable[[Progress], None]:
        """Shorten the chains of files below the disks of a running node, if they have become long."""

        def work(progress: Progress) -> None:
            host = self.under.hypervisors.on(node)
            files = copied_domain.drives(machines.definition(host.conn, node))
            for target in (target for target, drive in drives.items() if drive.kind == "disk"):
                below = list(disks.chain(host.pool, Path(files[target]).name))[1:]
                own = [name for name in below if volume_names.is_made(name)]
                if len(own) > LONGEST:
                    base = host.pool.path(below[len(own)] if len(below) > len(own) else own[-1])
                    text = f"copying the {len(own)} files below {target} into its own"
                    machines.flatten(host.conn, node, target, base, lambda part: progress.say(text, part))  # noqa: B023

        return work


def _used(hosts: Hypervisors, plan: Plan) -> list[Hypervisor]:
    """The hypervisors that a plan's nodes are on."""
    return [host for host in hosts if host.name in plan.hypervisors]


def _each(those: Sequence[T], work: Callable[[T], None]) -> None:
    """Do the same to each of several at the same time; raises the first error after all have ended."""
    with Threads(len(those)) as pool:
        done = [pool.submit(work, one) for one in those]
    for future in done:
        future.result()
