"""Make machines from a snapshot: the lab itself, put back to it, or a copy under another name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from winlab import account, files, snapshots
from winlab.adapters.kube import kubeconfig, reduced
from winlab.adapters.vm import agent, disks, domains, power
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design.plan import addresses, copied, tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.placement import CHOSEN, Placement
from winlab.design.plan.stock import Stock
from winlab.design.render import copied_domain
from winlab.design.render.topology import topology
from winlab.engine.durations import Forecast
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import HostError, NotFoundError, WinlabError
from winlab.events import Listener, Note, Progress
from winlab.lab_folder import LabFolder
from winlab.operations import faults, look, protect, recorded, room
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.planning import Proposal
from winlab.operations.snapshot import brought, compatible, memory, required, where
from winlab.operations.snapshot.required import COPYING
from winlab.site import Site
from winlab.snapshots import Id, Snapshot
from winlab.steps import foundation, fresh, payload
from winlab.steps.power import answer, clock, ready
from winlab.steps.power.subject import Subject
from winlab.steps.sources import ANYWHERE, Origin
from winlab.steps.states import ANSWERING, KUBECTL, NETWORK, RESTORED
from winlab.threads import Threads


@dataclass(frozen=True)
class Copied:
    """A lab that was made from a snapshot.

    :param resumed: seconds until all machines ran; 0 if only their disks were saved: they are off.
    :param ready: seconds until all nodes answered and were Ready, and had their own credentials if they were to.
    :param shared: whether all of its machines share the snapshot's memory, copy on write.
    :param fresh_credentials: whether it has its own credentials, and refuses those of the lab that was saved.
    """

    lab: str
    snapshot: Id
    resumed: float
    ready: float
    shared: bool
    fresh_credentials: bool = False


def reset(which: Id, lab: str, site: Site, tell: Listener) -> Copied:
    """Put a lab back to one of its snapshots, or to one that it is a copy of. What it did since is lost.

    :raises NotFoundError: there is no such snapshot or lab. Nothing was touched.
    :raises ConflictError: the lab is protected, it is another lab's snapshot, or the memory can't be restored here.
        Nothing was touched.
    """

    def work(under: Underway) -> Copied:
        protect.refuse(lab, under.hypervisors)
        snapshot = snapshots.read(which)
        plan = snapshot.plan if lab == which.lab else copied.plan_again(snapshot.plan, recorded.read(under.folder).plan)
        return _Copying(snapshot, plan, under).run()

    return carry_out(Job(lab, work, must_exist=True, storage=True), site, tell)


def clone(
    which: Id,
    labs: Sequence[str],
    site: Site,
    tell: Listener,
    *,
    fresh_credentials: bool = False,
    origin: Origin = ANYWHERE,
    on: str | None = None,
) -> list[Copied]:
    """Make copies of a lab, beside it, as it was when a snapshot was taken; all at the same time.

    If winlab is killed, the same command makes all of them again.

    :param labs: their names.
    :param fresh_credentials: give each its own credentials, and have it refuse those of the lab that was saved.
    :param origin: where kubectl comes from, if this host does not have it.
    :param on: the hypervisor that they are made on. By default each node is where its memory was saved, or on another
        one if there is no room.
    :raises NotFoundError: there is no such snapshot. Nothing was touched.
    :raises UsageError: the site has no hypervisor *on*, or tunnels to it don't take the lab's packets.
    :raises ConflictError: there is a lab of one of the names, the memory can't be restored here, or a copy can't get
        its own credentials.
    :raises HostError: there is not enough memory for all of them, or a hypervisor that is needed does not answer.
        Nothing was touched.
    """

    with site.storage() as hosts:
        snapshot = snapshots.read(which)
        placed = where.elsewhere(snapshot, labs, on, site, hosts)

    def make(lab: str) -> Copied:
        def work(under: Underway) -> Copied:
            return _clone(which, under, placed[lab], fresh_credentials, origin)

        return carry_out(Job(lab, work, storage=True), site, tell)

    with Threads(len(labs)) as pool:
        made = [pool.submit(make, lab) for lab in labs]
    for lab, one in zip(labs, made, strict=True):
        if one.exception() is None:
            (site.folder(lab).path / COPYING).unlink(missing_ok=True)
    return [one.result() for one in made]


def _clone(
    which: Id, under: Underway, elsewhere: Mapping[str, Placement], fresh_credentials: bool, origin: Origin
) -> Copied:
    snapshot, lab = snapshots.read(which), under.folder.lab
    if fresh_credentials:
        required.require_renewable(snapshot)
    required.require_free([lab], which.lab, under.site, under.hypervisors)
    plan = snapshot.plan if lab == which.lab and not elsewhere else _placed(snapshot, lab, under, elsewhere)
    return _Copying(snapshot, plan, under, is_new=True, fresh_credentials=fresh_credentials, origin=origin).run()


def _placed(snapshot: Snapshot, lab: str, under: Underway, elsewhere: Mapping[str, Placement]) -> Plan:
    """The plan of the copy, with external addresses that no other lab has.

    :raises HostError: there are none left.
    """
    cidr, count = snapshot.plan.network.external_cidr, len(snapshot.plan.nodes) + 1
    (first,) = addresses.blocks(cidr, addresses.external_block(cidr, lab, count, None)[:1])
    last = addresses.last_block(cidr)
    used = {placement.host for placement in elsewhere.values()}
    facts = {host.name: host.facts for host in under.hypervisors if host.name in used}
    with under.site.overlay() as northbound:
        for block in (*range(first, last + 1), *range(1, first)):
            plan = copied.plan_of(snapshot.plan, lab, block, elsewhere, facts)
            if northbound.holder(topology(plan)) is None:
                return plan
    raise HostError(
        f"No external addresses are left for the lab '{lab}'.",
        why=f"Labs have all blocks of {cidr}.",
        cure="Destroy labs that you do not need: 'winlab list' shows them.",
    )


class _Copying:
    """A lab that is being made from a snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        plan: Plan,
        under: Underway,
        *,
        is_new: bool = False,
        fresh_credentials: bool = False,
        origin: Origin = ANYWHERE,
    ) -> None:
        self._is_new = is_new  # otherwise the lab exists, and is put back
        self._snapshot = snapshot
        self._plan = plan
        self._under = under
        self._begun = time.monotonic()
        self._resumed = 0.0
        self._run = Run.start(plan, Stock(), under.site, under.hypervisors)
        self._unshared = where.unshared(snapshot, plan, under.hypervisors)
        self._fresh = fresh_credentials
        self._origin = origin  # of kubectl

    def run(self) -> Copied:
        plan, under, folder = self._plan, self._under, self._under.folder
        compatible.require(self._snapshot, plan, under.hypervisors)
        definitions = {node.name: self._definition(node) for node in plan.nodes}
        if self._snapshot.memory:
            room.require_for(plan, under.hypervisors, shares=where.shares(plan, self._unshared))
        self._report()
        if self._is_new:
            folder.write(folder.path / COPYING, f"{self._snapshot.id}\n")
        self._provide_kubectl(folder)
        for machine in under.hypervisors.machines(plan.lab):
            power.cut_power(under.hypervisors.on(machine).conn, machine)
        self._write_folder(folder)
        under.run(Forecast(self._run.pace.known, [plan]).steps(self._steps(definitions)), "clone")
        self._remove_others()
        if self._fresh:
            fresh.take(self._run)
        if not self._is_new:
            (folder.path / COPYING).unlink(missing_ok=True)  # of a copy that was not completed
        resumed, ready = round(self._resumed, 2), round(time.monotonic() - self._begun, 2)
        shared = self._snapshot.memory and not self._unshared
        return Copied(plan.lab, self._snapshot.id, resumed, ready, shared, self._fresh)

    def _home(self, node: NodePlan) -> Hypervisor:
        """The hypervisor whose pool has the node's part of the snapshot."""
        return self._under.hypervisors.on(self._snapshot.plan.node(node.name))

    def _definition(self, node: NodePlan) -> str:
        return memory.definition(self._home(node).pool, self._snapshot, node.name)

    def _report(self) -> None:
        """Report which nodes of a new copy had no room beside the snapshot, and whose memory is not shared."""
        for node in self._plan.nodes if self._is_new else ():
            why = self._plan.placed.get(node.name)
            if why not in (None, CHOSEN) and self._home(node).name != node.hypervisor:
                self._under.tell(Note(lab=self._plan.lab, text=f"'{node.name}' is on '{node.hypervisor}': {why}."))
        for why in dict.fromkeys(self._unshared.values()):
            names = [name for name, other in self._unshared.items() if other == why]
            which = "" if len(names) == len(self._plan.nodes) else f" of {', '.join(names)}"
            text = f"The whole memory{which} is restored, which is slower and takes more of it: {why}."
            self._under.tell(Note(lab=self._plan.lab, text=text))

    def _remove_others(self) -> None:
        """Remove the lab's machines that the snapshot does not have, their volumes, and the disks that it had before.

        They come last: a lab without any machine could not be put back any more.
        """
        lab, hosts = self._plan.lab, self._under.hypervisors
        kept = {node.uuid for node in self._plan.nodes}
        for machine in hosts.machines(lab):
            if machine.uuid not in kept:
                domains.remove(hosts.on(machine).conn, machine)
        for host in hosts:
            nodes = {node.name for node in self._plan.nodes if node.hypervisor == host.name}
            named = host.pool.names(f"{lab}.")
            rest = [name for name in named if name.split(".")[1] not in nodes or name.endswith(memory.RESTORING)]
            disks.collect(host, {*disks.of_lab(host.pool, lab), *rest})

    def _write_folder(self, folder: LabFolder) -> None:
        """Give the lab the credentials and the record that it had."""
        snapshot, plan = self._snapshot, self._plan
        spec = copied.placed_spec(snapshot.restored_spec(), plan)
        if plan.lab != snapshot.lab:
            (block,) = addresses.blocks(plan.network.external_cidr, [plan.network.router_external])
            spec = copied.spec_of(spec, block)
        self._report_credentials(folder)
        folder.write(folder.path / "credentials.json", snapshot.credentials.model_dump_json(indent=1))
        folder.ensure_credentials(plan)
        recorded.write(folder, Proposal(spec, plan, Stock()))
        if snapshot.kubeconfig is not None:
            identity = reduced.own_identity(snapshot.kubeconfig)
            text = kubeconfig.for_lab(identity, plan.lab, plan.cluster.external, plan.network.external_cidr)
            folder.write(folder.kubeconfig, text)
        if self._fresh:
            fresh.prepare(self._run)
        else:
            fresh.forget(folder)

    def _provide_kubectl(self, folder: LabFolder) -> None:
        """Give the host the kubectl of the lab that was saved; if it is not here, as after an import, obtain one.

        :raises WinlabError: there is none, and the copy can't get its own administrator without it.
        """
        snapshot = self._snapshot
        if snapshot.kubeconfig is None or folder.has(folder.kubectl):
            return
        if snapshot.kubectl is not None and snapshot.kubectl.exists():
            files.replace_link(folder.kubectl, snapshot.kubectl)
            return

        def work(progress: Progress) -> None:
            try:
                payload.link_kubectl(self._run, progress, self._origin)
            except WinlabError as error:
                if self._fresh:
                    raise
                text = (
                    f"Not waiting until the nodes are Ready: kubectl can't be obtained. {error.what} "
                    f"'winlab repair --lab {folder.lab}' tries again."
                )
                self._under.tell(Note(lab=folder.lab, text=text))

        self._under.one_step(KUBECTL(folder.lab).title, work, usual=60)

    def _report_credentials(self, folder: LabFolder) -> None:
        """Report that a copy with its own credentials, which is put back, has those of the snapshot again."""
        with suppress(WinlabError):
            if folder.credentials().ssh_key != self._snapshot.credentials.ssh_key and not self._fresh:
                text = f"The lab has the passwords and keys of '{self._snapshot.id}' again, not its own."
                self._under.tell(Note(lab=self._plan.lab, text=text))

    def _steps(self, definitions: dict[str, str]) -> Sequence[Step]:
        run, lab = self._run, self._plan.lab
        network = next(step for step in foundation.steps(run) if step.reaches == NETWORK(lab))
        steps = [Step(network.reaches, self._network(network), lambda: False, usual=network.usual)]
        for node in self._plan.nodes:
            work = self._restoring(node, definitions[node.name])
            steps.append(Step(RESTORED(lab, node.name), work, lambda: False, [network.reaches], usual=2))
        if self._snapshot.memory:
            checks = list(self._checks())
            steps += checks
            if self._fresh:
                cluster = self._snapshot.kubeconfig is not None
                steps += fresh.steps(run, [step.reaches for step in checks], cluster=cluster)
        return steps

    def _network(self, step: Step) -> Callable[[Progress], object]:
        def work(progress: Progress) -> None:
            step.run(progress)
            with self._run.overlay() as northbound:
                faults.forget_packets(self._plan.lab, northbound)
                if self._snapshot.routes:
                    northbound.set_pod_routes(self._plan.lab, self._snapshot.routes)

        return work

    def _restoring(self, node: NodePlan, saved: str) -> Callable[[Progress], None]:
        """The work that makes the volumes and the domain of a node, and starts it as it was."""

        def work(progress: Progress) -> None:
            host, lab = self._run.on(node), self._plan.lab
            progress.say("disks")
            files = self._fill_drives(host, node, progress)
            # the lab's own machine may have another name, which an earlier winlab gave it
            named = node.model_copy(update={"domain": domains.name_of(host.conn, node)})
            definition = copied_domain.domain_xml(
                saved,
                self._plan,
                named,
                files=files,
                pool=host.pool.folder,
                vnc_password=self._run.folder.credentials().nodes[node.name].vnc_password,
                uid=account.uid(),
            )
            machines.define(host.conn, node, definition)
            self._remove_elsewhere(node)
            if self._snapshot.memory:
                shared, source = node.name not in self._unshared, self._home(node).pool
                progress.say("memory, copy on write" if shared else f"{node.memory_mib} MiB of memory")
                memory.restore(host, self._snapshot, lab, node, shared=shared, source=source)
                self._resumed = time.monotonic() - self._begun
                # A node without an agent gets the right time by its login, some seconds later
                agent.set_clock(host.conn, node, clock.skew(host.conn, node))

        return work

    def _remove_elsewhere(self, node: NodePlan) -> None:
        """Remove a node's machine on another hypervisor than the snapshot, before the new one starts.

        So a lab whose node was moved never has two machines of it that run, although it is killed at any time.
        """
        for host in self._under.hypervisors:
            for machine in host.machines(self._plan.lab) if host.name != node.hypervisor else ():
                if machine.tag.node == node.name:
                    domains.remove(host.conn, machine)

    def _fill_drives(self, host: Hypervisor, node: NodePlan, progress: Progress) -> dict[str, Path]:
        """Make the node's own volumes; returns their files by target."""
        lab, home, files = self._plan.lab, self._home(node), {}
        for target, drive in self._snapshot.nodes[node.name].drives.items():
            if home.name != host.name:
                name = brought.volume(drive, f"{lab}.{node.name}", home, host, progress)
            elif drive.kind == "disk":
                frozen = host.pool.backing(drive.volume)
                if frozen is None:
                    raise NotFoundError(
                        f"The volume '{drive.volume}' of the snapshot '{self._snapshot.id}' has no frozen disk.",
                        cure="Delete the snapshot, and save the lab again.",
                    )
                name = disks.next_free(host.pool, f"{lab}.{drive.what}")
                host.pool.create_overlay(name, frozen.name)
            elif drive.kind == "own":
                name = f"{lab}.{drive.what}"
                host.pool.copy(name, drive.volume)
            elif host.pool.exists(drive.what):
                name = drive.what
            else:
                raise NotFoundError(
                    f"The volume '{drive.what}' is gone, which '{node.name}' has in its drive '{target}'.",
                    why="Someone removed it from the storage pool.",
                    cure="Make the lab with 'winlab create', and save it again.",
                )
            files[target] = host.pool.path(name)
        return files

    def _checks(self) -> Iterator[Step]:
        """The steps that wait until the machines answer, with the right time, and are Ready nodes."""
        lab = self._plan.lab
        standing = self._under.lab
        kubectl = look.kubectl(standing.folder) if self._snapshot.kubeconfig is not None else None
        controllers = [node for node in self._plan.nodes if node.role == "controller"]
        for node in self._plan.nodes:
            machine = Machine(node.domain, "off", tags.of(self._plan, node), hypervisor=node.hypervisor)
            subject = Subject(standing, machine, since=time.time())
            answering = answer.step(subject)
            yield Step(answering.reaches, answering.run, answering.done, [RESTORED(lab, node.name)], usual=2)
            if kubectl is not None and node.is_member:
                after = [ANSWERING(lab, one.name) for one in controllers]
                yield ready.step(subject, kubectl, after)
