"""Steps that bring Kubernetes to the nodes: artifacts from the chosen source, a CD with them, that CD in a drive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from winlab import files
from winlab.adapters.vm import devices, disks
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design import system
from winlab.design.catalog.artifact import ContainerImage, Obtained, Program
from winlab.design.plan import required
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import STORE_DRIVE
from winlab.design.system import System
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError, HostError, NotFoundError
from winlab.events import Progress
from winlab.run import CommandError
from winlab.steps import host_kubectl
from winlab.steps.sources import ANYWHERE, UNVOUCHED, Origin, Supply, fetch_kubectl, importers
from winlab.steps.states import DRIVE_FREE, KUBECTL, PAYLOAD, PAYLOAD_INSERTED
from winlab.supply import intact
from winlab.supply.artifacts import preload, store
from winlab.supply.artifacts.oci import builds
from winlab.supply.payload import PREFIX, PayloadCd


@dataclass(frozen=True)
class Disks:
    """The volumes in the pool that bring a system's payload to its nodes.

    :param store: the disk with containerd's store, if this host could make one.
    """

    cd: str
    store: str | None = None


CACHED = 30.0  # seconds for a payload whose artifacts are all in the cache


def steps(run: Run, supply: Supply) -> list[Step]:
    """One step for each system that the nodes run on a hypervisor, the controllers' first; one for each node's drive.

    Without controllers, the host's kubectl gets a separate step.
    """
    payloads = required.payloads(run.plan)
    payload_steps: list[Step] = []
    before: list[State] = []
    for payload in payloads:
        hosts = run.hosts(node for node in run.plan.supplied if node.os == payload.os)
        made = [_system_step(run, supply, payload, host, before, first=host is hosts[0]) for host in hosts]
        payload_steps += made
        before = [step.reaches for step in made]  # builds use the whole machine: the controllers' payload first
    if run.plan.joins:
        payload_steps.append(_kubectl_step(run, supply))
    return payload_steps + [insert_step(run, node) for node in run.plan.supplied]


def has_all(run: Run) -> bool:
    """Whether every node that gets a payload CD has it."""
    return all(_inserted(run, node) is not None for node in run.plan.supplied)


def payload_step(run: Run, supply: Supply, of: System, host: Hypervisor) -> Step:
    """The step that brings one system's payload into a pool, regardless of what the plan's nodes have: another
    machine needs it."""
    payload = next(one for one in required.payloads(run.plan) if system.get(one.os) is of)
    return replace(_system_step(run, supply, payload, host, [], first=True), done=lambda: False)


def _link_kubectl(run: Run, supply: Supply, obtained: list[Obtained], progress: Progress) -> None:
    """Give the host its kubectl: that of the controllers, a pinned one if nothing verifies theirs, or the
    published one if theirs is built from a checkout.

    :param obtained: what was already obtained; kubectl may be missing.
    """
    if supply.kubectl is not None:
        with supply.turn:
            path = supply.kubectl(progress)
    else:
        kubectl = supply.host_kubectl(run.plan.cluster.versions)
        there = [item for item in obtained if item.artifact == kubectl]
        (program,) = there or supply.obtain_for_host(kubectl, progress)
        intact.verify(program)
        path = program.path
    run.folder.make()
    files.replace_link(run.folder.kubectl, path)


def _kubectl_step(run: Run, supply: Supply) -> Step:
    def work(progress: Progress) -> None:
        host_kubectl.drop_damaged(run.folder)
        _link_kubectl(run, supply, [], progress)

    def done() -> bool:
        return supply.check is None and not host_kubectl.trouble(run.folder)

    return Step(KUBECTL(run.lab), work, done, usual=60, load=Load.CORE)


def link_kubectl(run: Run, progress: Progress, origin: Origin = ANYWHERE) -> None:
    """Give the host its kubectl for a lab that exists: the published one, also if the lab's is from a checkout.

    :raises WinlabError: no source has it, or it can't be linked.
    """
    host_kubectl.drop_damaged(run.folder)
    path = fetch_kubectl(run.plan.cluster.versions, origin, progress)
    run.folder.make()
    files.replace_link(run.folder.kubectl, path)


def _system_step(
    run: Run,
    supply: Supply,
    payload: required.RequiredPayload,
    host: Hypervisor,
    after: Iterable[State],
    *,
    first: bool,
) -> Step:
    reaches, runs = PAYLOAD(of=payload.os, host=host.name), system.get(payload.os)
    nodes = [node for node in run.plan.supplied if node.system is runs and node.hypervisor == host.name]
    links = first and runs.control_plane and not run.plan.joins
    # Artifacts that are locked or given by flags are compared with those of the nodes, even if the lab has everything
    compared = supply.check is not None or supply.own

    def work(progress: Progress) -> None:
        if links:
            host_kubectl.drop_damaged(run.folder)
        obtained = supply.obtain(list(payload.artifacts), progress)
        if links:
            _link_kubectl(run, supply, obtained, progress)
        for sentence in builds.unfit(run.plan, obtained):
            progress.say(sentence)
        made = PayloadCd(payload.os, obtained, payload.plugins)
        if compared:
            _refuse_other_payload(run, [node for node in nodes if node.is_member], made.volume, supply)
        if not host.pool.is_complete(made.volume):
            progress.say(f"writing the payload CD, {made.size >> 20} MiB")
            with store.workspace() as folder:
                path = folder / "payload.iso"
                made.write(path)
                host.pool.upload_base(made.volume, path, progress.say)
        preloaded = _preloaded(host.pool, supply, obtained, progress) if runs.store_disk else None
        run.outputs.put(reaches, Disks(made.volume, preloaded))

    def done() -> bool:
        if compared or any(_inserted(run, node) is None for node in nodes):
            return False
        return not links or not host_kubectl.trouble(run.folder)

    also = [KUBECTL(run.lab)] if links else []
    usual = CACHED if supply.has(payload.artifacts) else runs.usual_payload
    return Step(reaches, work, done, after, also, usual=usual, load=Load.CORE)


def _refuse_other_payload(run: Run, nodes: list[NodePlan], volume: str, supply: Supply) -> None:
    """Check that the lab's nodes were made from the artifacts that are locked or given by flags.

    :raises ConflictError: one was not.
    """
    others = [node.name for node in nodes if _inserted(run, node) not in (None, volume)]
    if others:
        destroy = f"'winlab destroy --lab {run.plan.lab}'"
        locked = supply.check is not None
        raise ConflictError(
            "These nodes of the lab were made from other programs than those "
            f"{'locked' if locked else 'given now'}: {', '.join(others)}.",
            cure=f"Run {destroy} first, or leave out --locked."
            if locked
            else f"Swap a program on a running node with 'winlab push'; or run {destroy} first.",
        )


def _preloaded(pool: StoragePool, supply: Supply, obtained: list[Obtained], progress: Progress) -> str | None:
    """The disk with containerd's store; None if this host can't or may not make it: nodes are then only slower."""
    images = [item for item in obtained if isinstance(item.artifact, ContainerImage)]
    programs = {item.artifact.name: item for item in obtained if isinstance(item.artifact, Program)}
    volume = preload.volume(images, programs["containerd"])
    if pool.is_complete(volume):
        return volume
    if not all(map(supply.host_may_run, importers(item.artifact for item in obtained))):
        progress.say(UNVOUCHED)
        return None
    with store.workspace() as folder:
        disk, work = folder / "store.qcow2", folder / "work"
        work.mkdir()
        try:
            preload.make(images, programs["containerd"], programs["ctr"], disk, work, progress)
        except (CommandError, HostError) as error:
            progress.say(f"nodes will import the images themselves: {error.what}")
            return None
        pool.upload_base(volume, disk, progress.say)
    return volume


def _inserted(run: Run, node: NodePlan) -> str | None:
    """The payload CD in a node's drive; None if there is none or its upload did not finish."""
    host = run.on(node)
    path = devices.medium(host.conn, node, node.system.payload_drive[0])
    if path is None or not path.name.startswith(PREFIX) or not host.pool.is_complete(path.name):
        return None
    return path.name


def _add_store(run: Run, node: NodePlan, base: str) -> None:
    """Give the node its own overlay of the disk with containerd's store; it is mounted when the node is prepared."""
    host = run.on(node)
    if devices.has_disk(host.conn, node, STORE_DRIVE):
        return
    volume = disks.current(host, node, f"{run.plan.lab}.{node.name}.store.qcow2")
    host.pool.create_disk(volume, None, base)
    devices.attach(host.conn, node, STORE_DRIVE, host.pool.path(volume))


def insert_step(run: Run, node: NodePlan) -> Step:
    """The step that puts the payload CD into a node's drive."""
    target, bus = node.system.payload_drive
    host = run.on(node)
    payload = PAYLOAD(of=node.os, host=host.name)

    def at_hand() -> Disks:
        made = run.outputs.get(payload, Disks)
        if made is not None:
            return made
        # an earlier create made the CD: another node of the system has it
        for other in run.plan.supplied:
            if (
                other.system is node.system
                and other.hypervisor == host.name
                and (volume := _inserted(run, other)) is not None
            ):
                return Disks(volume)
        raise NotFoundError(f"There is no payload CD for '{node.name}'.", cure="Run the same command again.")

    def work(progress: Progress) -> None:
        disks = at_hand()
        if disks.store is not None:
            _add_store(run, node, disks.store)
        progress.say(disks.cd)
        devices.insert(host.conn, node, target, bus, host.pool.path(disks.cd))

    after = [DRIVE_FREE(run.lab, node.name), payload]
    reaches = PAYLOAD_INSERTED(run.lab, node.name)
    return Step(reaches, work, lambda: _inserted(run, node) is not None, after, usual=1)
