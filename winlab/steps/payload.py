"""Steps that bring Kubernetes to the nodes: artifacts from the chosen source, a CD with them, that CD in a drive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from winlab import files
from winlab.adapters.vm import devices, disks
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design import system
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program, Source
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import STORE_DRIVE
from winlab.design.system import System
from winlab.design.system.windows import SHIM
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError
from winlab.events import Progress
from winlab.run import CommandError
from winlab.steps import host_kubectl
from winlab.steps.states import DRIVE_FREE, KUBECTL, PAYLOAD, PAYLOAD_INSERTED
from winlab.supply import intact
from winlab.supply.artifacts import overrides, preload, select, store
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.oci import builds
from winlab.supply.artifacts.overrides import OverriddenSource
from winlab.supply.artifacts.upstream import UpstreamSource
from winlab.supply.payload import PREFIX, PayloadCd

UNVOUCHED = (
    "Nodes import their images themselves, which takes longer: no digest that was known before verifies containerd"
    " and ctr, so this host does not run them (--bundle-digest and --source build have one)."
)


@dataclass(frozen=True)
class Disks:
    """The volumes in the pool that bring a system's payload to its nodes.

    :param store: the disk with containerd's store, if this host could make one.
    """

    cd: str
    store: str | None = None


CACHED = 30.0  # seconds for a payload whose artifacts are all in the cache


@dataclass(frozen=True)
class Supply:
    """Where artifacts come from in one run of create."""

    source: Source
    missing: frozenset[Artifact] = frozenset()  # optional ones that the source can't give
    check: Callable[[list[Obtained]], None] | None = None  # against the lock file
    own: bool = False  # whether it includes the user's own programs
    bundle: Path | None = None  # that it is taken from
    kubectl: Callable[[Progress], Path] | None = None  # gets the host's own, if the source's must not run on the host
    turn: threading.Lock = field(default_factory=threading.Lock, compare=False)

    def host_may_run(self, program: Program) -> bool:
        """Whether a digest that was already known verifies a program; a lock file's digest came with the spec."""
        return self.source.pinned(program)

    def host_kubectl(self, versions_: versions.Versions) -> Program:
        """The kubectl that this host runs: the cluster's own if it may run here, otherwise a neighboring minor's.

        :raises NotFoundError: nothing verifies any that the source has.
        """
        return _may_run(self.source, required.kubectls(versions_))

    def has(self, artifacts: Iterable[Artifact]) -> bool:
        """Whether all of them are on this host, so that nothing is downloaded or built."""
        here = [artifact for artifact in artifacts if artifact not in self.missing]
        if isinstance(self.source, BuildSource):
            return not self.source.compiles(here)
        if isinstance(self.source, UpstreamSource):
            return self.source.probe_url(here) is None
        return isinstance(self.source, (BundleSource, _Nothing))

    def obtain(self, artifacts: list[Artifact], progress: Progress) -> list[Obtained]:
        """Obtain what the source has, one call at a time: builds use the whole machine.

        :raises ConflictError: something differs from the lock file.
        """
        here = [artifact for artifact in artifacts if artifact not in self.missing]
        with self.turn:
            obtained = self.source.obtain_all(here, progress)
        if self.check is not None:
            self.check(obtained)
        return obtained

    def obtain_for_host(self, program: Program, progress: Progress) -> list[Obtained]:
        """Obtain a program that nodes need not have: it is then not in the lock file, and only its pin counts."""
        with self.turn:
            return self.source.obtain_all([program], progress)

    def obtain_intact(self, artifacts: list[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for what is read on this host: each file is compared with its digest.

        :raises TransferError: a file in the cache has changed.
        """
        obtained = self.obtain(artifacts, progress)
        for item in obtained:
            intact.verify(item)
        return obtained


class _Nothing:
    """The source of a lab without a cluster, which needs no artifacts."""

    name = "nothing"

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        return dict.fromkeys(wanted, "the lab has no cluster")

    def pinned(self, program: Program) -> bool:  # noqa: ARG002
        return False

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:  # noqa: ARG002
        raise NotFoundError(f"The lab has no cluster that would need {artifact}.")

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        return [self.obtain(artifact, progress) for artifact in artifacts]


@dataclass(frozen=True)
class Origin:
    """What the user says about where artifacts come from; without it, the source is whatever is available."""

    kind: select.Kind | None = None
    bundle: Path | None = None
    mirror: str | None = None
    bundle_digest: str | None = None  # that the bundle must have
    insecure_mirror: bool = False
    own: tuple[tuple[str, Path], ...] = ()  # the user's own programs: (kubelet, PATH), for the file's system


ANYWHERE = Origin()


def _may_run(source: Source, alternatives: list[Program]) -> Program:
    """The one of *alternatives* that this host may run.

    :raises NotFoundError: nothing verifies any that the source has.
    """
    program = select.for_host(source, alternatives)
    if program is None:
        raise NotFoundError(
            f"The source '{source.name}' has no {alternatives[0].name} that this host may run.",
            why=f"Looked for: {', '.join(map(str, alternatives))}.",
            cure=select.HOST_CURE,
        )
    return program


def choose(
    plan: Plan,
    origin: Origin,
    *,
    settled: bool = False,
    check: Callable[[list[Obtained]], None] | None = None,
    runs: bool = True,
) -> tuple[Supply, str]:
    """Decide where everything that the lab needs comes from, before anything is touched; returns the reason, too.

    :param check: compares what is obtained with the lock file.
    :param runs: this host will run kubectl, and containerd to import images; False: it only keeps what it gets.
    :param settled: the lab has everything (:func:`has_all`), so that it can continue where nothing could be obtained.
    :raises UsageError: the user's choices contradict each other, or an own program can't be used.
    :raises NotFoundError: no source has everything.
    """
    if plan.kubernetes is None:
        return Supply(_Nothing()), "nowhere: the lab has no cluster."
    every = required.every(plan)
    versions_ = plan.cluster.versions
    if plan.cluster.source is not None and origin.bundle is not None:
        raise UsageError(
            "kubernetes.source is to be built, but a bundle holds what was built before.",
            cure="Leave kubernetes.source out of the spec (a bundle made with it holds what was built), or --bundle.",
        )
    trees = {"k8s.io/kubernetes": plan.cluster.source} if plan.cluster.source else {}
    kind = origin.kind or ("build" if trees else None)
    if trees and kind != "build":
        raise UsageError(
            f"kubernetes.source is to be built, so it can't come from the source '{kind}'.", cure="Leave out --source."
        )
    optional = [artifact for artifact in every if required.optional(artifact)]
    own: dict[overrides.Replaced, Path] = {}
    for program, path in origin.own:
        replaced = overrides.meant(program, path, every)
        if replaced in own:
            raise UsageError(f"Both '{own[replaced]}' and '{path}' are given for {replaced}.", cure="Give one of them.")
        own[replaced] = path
    needed = [artifact for artifact in every if not (isinstance(artifact, Program) and artifact in own)]
    pins = required.pins(plan)
    source, why = select.choose(
        needed,
        pins=pins,
        build=lambda: BuildSource(versions_.kubernetes, trees, required.builds(plan), pins.module_sums),
        kind=kind,
        bundle_path=origin.bundle,
        bundle_digest=origin.bundle_digest,
        mirror=origin.mirror,
        insecure_mirror=origin.insecure_mirror,
        host=() if trees or settled or not runs else required.kubectls(versions_),
        optional=optional,
        settled=settled,
    )
    missing = frozenset(source.cannot(optional))
    why += _left_out(missing)
    taken = source.bundle.path if isinstance(source, BundleSource) else None
    source = OverriddenSource(source, own) if own else source
    # A checkout may come with someone else's spec: what is built from it runs in nodes, never on the host
    kubectl = (lambda progress: fetch_kubectl(versions_, origin, progress)) if trees else None
    if trees and runs and not settled:
        _kubectl_source(versions_, origin)  # if there is none, report that now, not after the build
    supply = Supply(source, missing, check=check, own=bool(own), bundle=taken, kubectl=kubectl)
    if runs and not settled and not all(map(supply.host_may_run, _importers(needed))):
        why += f" {UNVOUCHED}"
    return supply, why


def _importers(artifacts: Iterable[Artifact]) -> list[Program]:
    """The programs that this host runs to import images for the nodes."""
    return [
        artifact
        for artifact in artifacts
        if isinstance(artifact, Program)
        and artifact.name in ("containerd", "ctr")
        and system.get(artifact.os).store_disk
    ]


def _left_out(missing: frozenset[Artifact]) -> str:
    """What the user must know about missing artifacts."""
    if not missing:
        return ""
    names = ", ".join(sorted(str(artifact) for artifact in missing))
    shim = any(isinstance(artifact, Program) and artifact.name == SHIM for artifact in missing)
    return f" Missing: {names}" + (": nodes become Ready, and Windows runs no pods." if shim else ".")


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


def fetch_kubectl(versions_: versions.Versions, origin: Origin, progress: Progress) -> Path:
    """A kubectl that an already known digest verifies, from the source that the lab will use; a lab's checkout is
    ignored.

    :raises UsageError: the user's choices contradict each other.
    :raises NotFoundError: no source has it.
    """
    source, kubectl = _kubectl_source(versions_, origin)
    (program,) = source.obtain_all([kubectl], progress)
    intact.verify(program)
    return program.path


def link_kubectl(run: Run, progress: Progress, origin: Origin = ANYWHERE) -> None:
    """Give the host its kubectl for a lab that exists: the published one, also if the lab's is from a checkout.

    :raises WinlabError: no source has it, or it can't be linked.
    """
    host_kubectl.drop_damaged(run.folder)
    path = fetch_kubectl(run.plan.cluster.versions, origin, progress)
    run.folder.make()
    files.replace_link(run.folder.kubectl, path)


def _kubectl_source(versions_: versions.Versions, origin: Origin) -> tuple[Source, Program]:
    pins = versions.load().pins
    alternatives = required.kubectls(versions_)
    source, _ = select.choose(
        [],
        host=alternatives,
        pins=pins,
        build=lambda: BuildSource(versions_.kubernetes, sums=pins.module_sums),
        kind=origin.kind,
        bundle_path=origin.bundle,
        bundle_digest=origin.bundle_digest,
        mirror=origin.mirror,
        insecure_mirror=origin.insecure_mirror,
    )
    return source, _may_run(source, alternatives)


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
    if not all(map(supply.host_may_run, _importers(item.artifact for item in obtained))):
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
