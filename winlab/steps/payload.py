"""Steps that bring Kubernetes to the nodes: artifacts from the chosen source, a CD of them, that CD in a drive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from winlab import files
from winlab.adapters.vm import domains
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program, Source, System
from winlab.design.plan import required
from winlab.design.plan.model import NodePlan, Plan
from winlab.design.render.domain import PAYLOAD_DRIVE, STORE_DRIVE
from winlab.engine.engine import Step
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError
from winlab.events import Progress
from winlab.run import CommandError
from winlab.steps import Context, linux_nodes
from winlab.supply.artifacts import overrides, preload, select, store
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.overrides import OverriddenSource
from winlab.supply.payload import PREFIX, Payload

USUAL = {"linux": 900.0, "windows": 600.0}  # seconds, when all is built; a download takes a fraction


@dataclass
class Supply:
    """Where artifacts come from in one run of create, and what was obtained so far."""

    source: Source
    missing: frozenset[Artifact] = frozenset()  # optional ones that the source can't give
    volumes: dict[System, str] = field(default_factory=dict)
    store: str | None = None  # the disk with containerd's store, where this host could make one
    check: Callable[[list[Obtained]], None] | None = None  # against the lock file
    own: bool = False  # whether programs of the person's own are among it
    bundle: Path | None = None  # the one that it is taken from
    turn: threading.Lock = field(default_factory=threading.Lock)

    def obtain(self, artifacts: list[Artifact], progress: Progress) -> list[Obtained]:
        """Obtain what the source has; builds share the machine, so one at a time.

        :raises ConflictError: something is not as the lock file says.
        """
        here = [artifact for artifact in artifacts if artifact not in self.missing]
        with self.turn:
            obtained = self.source.obtain_all(here, progress)
        if self.check is not None:
            self.check(obtained)
        return obtained


@dataclass(frozen=True)
class Origin:
    """What a person says about where artifacts come from; nothing means: what is at hand."""

    kind: select.Kind | None = None
    bundle: Path | None = None
    mirror: str | None = None
    own: tuple[tuple[str, Path], ...] = ()  # programs of the person's own: (kubelet, PATH), for the file's system


def choose(plan: Plan, origin: Origin, *, settled: bool = False) -> tuple[Supply, str]:
    """Decide where everything that the lab needs comes from, before anything is touched; and why.

    :param settled: see :func:`has_all`; a lab that has everything can be carried on where nothing could be obtained.
    :raises UsageError: what the person said does not fit together, or an own program is not one.
    :raises NotFoundError: no source has everything.
    """
    every = required.every(plan)
    versions_ = plan.cluster.versions
    if plan.cluster.source is not None and origin.bundle is not None:
        raise UsageError(
            "kubernetes.source is built, and a bundle has what it was made from.",
            cure="Leave kubernetes.source out of the spec (a bundle made with it holds what was built), or --bundle.",
        )
    trees = {"k8s.io/kubernetes": plan.cluster.source} if plan.cluster.source else {}
    kind = origin.kind or ("build" if trees else None)
    if trees and kind != "build":
        raise UsageError(
            f"kubernetes.source is built, and cannot come from the source '{kind}'.", cure="Leave out --source."
        )
    optional = [artifact for artifact in every if required.optional(artifact)]
    own: dict[overrides.Replaced, Path] = {}
    for program, path in origin.own:
        replaced = overrides.meant(program, path, every)
        if replaced in own:
            raise UsageError(f"Both '{own[replaced]}' and '{path}' are given for {replaced}.", cure="Give one of them.")
        own[replaced] = path
    needed = [artifact for artifact in every if not (isinstance(artifact, Program) and artifact in own)]
    source, why = select.choose(
        needed,
        pins=versions.load().pins,
        build=lambda: BuildSource(versions_.kubernetes, trees),
        kind=kind,
        bundle_path=origin.bundle,
        mirror=origin.mirror,
        optional=optional,
        settled=settled,
    )
    missing = frozenset(source.cannot(optional))
    why += _left_out(missing)
    taken = source.bundle.path if isinstance(source, BundleSource) else None
    return Supply(OverriddenSource(source, own) if own else source, missing, own=bool(own), bundle=taken), why


def _left_out(missing: frozenset[Artifact]) -> str:
    """What a person should know of what the lab will lack."""
    if not missing:
        return ""
    names = ", ".join(sorted(str(artifact) for artifact in missing))
    shim = any(isinstance(artifact, Program) and artifact.name == required.WINDOWS_SHIM for artifact in missing)
    return f" It lacks {names}" + (": nodes become Ready, and Windows runs no pods." if shim else ".")


def name(system: System) -> str:
    """The name of the step that brings a system's payload into the pool."""
    return f"payload {system}"


def steps(context: Context, supply: Supply) -> list[Step]:
    """One step for each system that the nodes run, the controllers' first, and one for each node's drive.

    Without controllers the host's kubectl comes by a step of its own.
    """
    payloads = required.payloads(context.plan)
    found: list[Step] = []
    before: tuple[str, ...] = ()
    for payload in payloads:
        found.append(_system_step(context, supply, payload, before))
        before = (name(payload.os),)  # builds share the machine: the controllers' things first
    if context.plan.joins:
        found.append(_kubectl_step(context, supply))
    return found + [insert_step(context, supply, node) for node in context.plan.nodes]


def has_all(context: Context) -> bool:
    """Whether every node has its payload CD."""
    return all(_inserted(context, node) is not None for node in context.plan.nodes)


def payload_step(context: Context, supply: Supply, system: System) -> Step:
    """The step that brings one system's payload into the pool, by itself: for another machine than the plan's nodes,
    so that it does not matter what those have."""
    payload = next(one for one in required.payloads(context.plan) if one.os == system)
    return replace(_system_step(context, supply, payload, ()), done=lambda: False)


def _link_kubectl(context: Context, obtained: list[Obtained]) -> None:
    """The kubectl for the host is the one of the controllers."""
    wish = required.kubectl(context.plan.cluster.versions)
    program = next(item.path for item in obtained if item.artifact == wish)
    context.state.make()
    files.replace_link(context.state.kubectl, program)


def _kubectl_step(context: Context, supply: Supply) -> Step:
    def run(progress: Progress) -> None:
        _link_kubectl(context, supply.obtain([required.kubectl(context.plan.cluster.versions)], progress))

    def done() -> bool:
        return supply.check is None and context.state.kubectl.exists()

    return Step(linux_nodes.KUBECTL, run, done, usual=60)


def fetch_kubectl(versions_: versions.Versions, origin: Origin, progress: Progress) -> Path:
    """A kubectl for the host, from where the lab's things will come from.

    :raises UsageError: what the person said does not fit together.
    :raises NotFoundError: no source has it.
    """
    wish = required.kubectl(versions_)
    source, _ = select.choose(
        [wish],
        pins=versions.load().pins,
        build=lambda: BuildSource(versions_.kubernetes),
        kind=origin.kind,
        bundle_path=origin.bundle,
        mirror=origin.mirror,
    )
    return source.obtain_all([wish], progress)[0].path


def _system_step(context: Context, supply: Supply, payload: required.Payload, needs: tuple[str, ...]) -> Step:
    nodes = [node for node in context.plan.nodes if node.os == payload.os]
    links = payload.os == "linux" and not context.plan.joins
    # What is locked, or given by a flag, is compared with what the nodes have, also in a lab that has everything
    compared = supply.check is not None or supply.own

    def run(progress: Progress) -> None:
        obtained = supply.obtain(list(payload.artifacts), progress)
        if links:
            _link_kubectl(context, obtained)
        made = Payload(payload.os, obtained, payload.plugins)
        if compared:
            _refuse_other_payload(context, nodes, made.volume, supply)
        if not context.pool.is_complete(made.volume):
            progress.say(f"writing the payload CD, {made.size >> 20} MiB")
            with store.workspace() as folder:
                path = folder / "payload.iso"
                made.write(path)
                context.pool.upload_base(made.volume, path, progress.say)
        supply.volumes[payload.os] = made.volume
        if payload.os == "linux":
            supply.store = _preloaded(context, obtained, progress)

    def done() -> bool:
        here = not links or context.state.kubectl.exists()
        return not compared and here and all(_inserted(context, node) is not None for node in nodes)

    return Step(name(payload.os), run, done, needs, usual=USUAL[payload.os])


def _refuse_other_payload(context: Context, nodes: list[NodePlan], volume: str, supply: Supply) -> None:
    """See that no node of the lab was made from other things than those that the lock file pins or flags give.

    :raises ConflictError: one was.
    """
    others = [node.name for node in nodes if _inserted(context, node) not in (None, volume)]
    if others:
        destroy = f"'winlab destroy --lab {context.plan.lab}'"
        locked = supply.check is not None
        raise ConflictError(
            "These nodes of the lab were made from other programs than those "
            f"{'locked' if locked else 'given now'}: {', '.join(others)}.",
            cure=f"Run {destroy} first, or leave out --locked."
            if locked
            else f"Swap a program on a running node with 'winlab push'; or run {destroy} first.",
        )


def _preloaded(context: Context, obtained: list[Obtained], progress: Progress) -> str | None:
    """The disk with containerd's store; None where this host can't make it, which only makes the nodes slower."""
    images = [item for item in obtained if isinstance(item.artifact, ContainerImage)]
    programs = {item.artifact.name: item for item in obtained if isinstance(item.artifact, Program)}
    volume = preload.volume(images, programs["containerd"])
    if context.pool.is_complete(volume):
        return volume
    with store.workspace() as folder:
        disk, work = folder / "store.qcow2", folder / "work"
        work.mkdir()
        try:
            preload.make(images, programs["containerd"].path, programs["ctr"].path, disk, work, progress)
        except (CommandError, HostError) as error:
            progress.say(f"nodes will import the images themselves: {error.what}")
            return None
        context.pool.upload_base(volume, disk, progress.say)
    return volume


def _inserted(context: Context, node: NodePlan) -> str | None:
    """The payload CD in a node's drive, if it is whole."""
    path = domains.medium(context.conn, node.domain, PAYLOAD_DRIVE[node.os][0])
    if path is None or not path.name.startswith(PREFIX) or not context.pool.is_complete(path.name):
        return None
    return path.name


def _add_store(context: Context, node: NodePlan, base: str) -> None:
    """Give the node its own overlay of the disk with containerd's store; the node mounts it when it is prepared."""
    if domains.has_disk(context.conn, node.domain, STORE_DRIVE):
        return
    volume = f"{context.plan.lab}.{node.name}.store.qcow2"
    context.pool.create_disk(volume, None, base)
    domains.attach(context.conn, node.domain, STORE_DRIVE, context.pool.path(volume))


def insert_step(context: Context, supply: Supply, node: NodePlan) -> Step:
    """The step that puts the payload CD into a node's drive."""
    target, bus = PAYLOAD_DRIVE[node.os]

    def run(progress: Progress) -> None:
        volume = supply.volumes.get(node.os)
        if volume is None:  # another node of the system has it: the CD itself was made by an earlier create
            volume = next((v for n in context.plan.nodes if n.os == node.os and (v := _inserted(context, n))), None)
        if volume is None:
            raise NotFoundError(f"There is no payload CD for '{node.name}'.", cure="Run the same command again.")
        if node.os == "linux" and supply.store is not None:
            _add_store(context, node, supply.store)
        progress.say(volume)
        domains.insert(context.conn, node.domain, target, bus, context.pool.path(volume))

    # Windows' drive held the answer CD until then; Linux gets the CD as soon as the guest is defined
    after = f"detach {node.name}" if node.os == "windows" else f"start {node.name}"
    return Step(
        f"insert {node.name}", run, lambda: _inserted(context, node) is not None, (after, name(node.os)), usual=1
    )
