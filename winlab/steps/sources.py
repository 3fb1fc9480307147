"""Where a lab's programs and images come from: what the user chose, and the source that this leads to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from winlab.design import system
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Artifact, Obtained, Program, Source
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.system.windows import SHIM
from winlab.errors import NotFoundError, UsageError
from winlab.events import Progress
from winlab.supply import intact
from winlab.supply.artifacts import overrides, select
from winlab.supply.artifacts.build.source import BuildSource
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.overrides import OverriddenSource
from winlab.supply.artifacts.upstream import UpstreamSource

UNVOUCHED = (
    "Nodes import their images themselves, which takes longer: no digest that was known before verifies containerd"
    " and ctr, so this host does not run them (--bundle-digest and --source build have one)."
)


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
    if runs and not settled and not all(map(supply.host_may_run, importers(needed))):
        why += f" {UNVOUCHED}"
    return supply, why


def importers(artifacts: Iterable[Artifact]) -> list[Program]:
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
