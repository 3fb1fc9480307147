"""The source ``build``: compiles what can be compiled, from published Go modules or local checkouts."""

from __future__ import annotations

import hashlib
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from winlab import files, run
from winlab.design import system
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.catalog.builds import GoBuild
from winlab.design.system import SystemName
from winlab.errors import NotFoundError, UsageError, WinlabError
from winlab.events import Progress
from winlab.supply.artifacts import store
from winlab.supply.artifacts.build import debs, toolchain
from winlab.supply.artifacts.build import images as build_images
from winlab.supply.artifacts.build.go_module import (
    GoModule,
    Target,
    check_c,
    check_published,
    check_source,
    compile_all,
)
from winlab.supply.artifacts.build.go_programs import PARTS, Part, of_extension, part, systems, tag
from winlab.supply.artifacts.build.toolchain import Go

_UNTRIED = "a build of it was never tested, because its Go modules were not available where winlab was developed"
_UNBUILT = {"crictl": _UNTRIED, "containerd-shim-runhcs-v1": _UNTRIED, "flannel": _UNTRIED}
CURE = "'winlab host setup --install' installs what winlab needs."
_ELSEWHERE = "use the source 'upstream', 'mirror' or 'bundle'"


@dataclass(frozen=True)
class _Group:
    """Programs that one run of Go compiles."""

    part: Part
    module: GoModule
    os: SystemName

    @property
    def inputs(self) -> dict[str, object]:
        """What decides the programs' bytes, except package and Go."""
        inputs: dict[str, object] = {"built": 1, "module": self.module.path, "version": self.module.version}
        inputs |= {"os": self.os, "tags": list(self.part.tags), "cgo": self.part.cgo}
        if self.part.own is not None:
            inputs["files"] = _digest(self.part.own)
        if self.part.recipe:
            inputs["recipe"] = self.part.recipe
        return inputs

    def __str__(self) -> str:
        return f"{self.module} for {self.os}"


class BuildSource:
    """Compiles programs and builds images from them.

    :param kubernetes: the lab's version of Kubernetes (``v1.36.3``); agnhost is taken from it.
    :param sources: local checkouts by module (``k8s.io/kubernetes``), built unchanged in place of the published
        versions. They are compiled at every call, because they may have changed; Go's own cache makes that quick.
    :param builds: how the parts of the lab's extensions are built.
    :param sums: the pinned sums of modules, by path and version.
    :raises UsageError: a checkout is not one of its module, or nothing is built from that module.
    """

    name = "build"

    def __init__(
        self,
        kubernetes: str,
        sources: Mapping[str, Path] | None = None,
        builds: Sequence[GoBuild] = (),
        sums: Mapping[tuple[str, str], str] = MappingProxyType({}),
    ) -> None:
        self.kubernetes = tag(kubernetes)
        self._sums = sums
        self.builds = tuple(builds)
        self.parts = (*PARTS, *(of_extension(build) for build in builds))
        self.sources = {module: path.resolve() for module, path in (sources or {}).items()}
        known = sorted({part.module for part in self.parts if part.own is None})
        for module, path in self.sources.items():
            if module not in known:
                raise UsageError(f"Nothing is built from a module '{module}'.", cure=f"Known are: {', '.join(known)}.")
            check_source(GoModule(module, self.kubernetes, path))

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """The parts of *wanted* that are never built here, with reasons. Quick; checks nothing on the host."""
        return {artifact: reason for artifact in wanted if (reason := self._refusal(artifact))}

    def pinned(self, program: Program) -> bool:
        """Whether it is built from a published module whose sum is pinned, or from winlab's own code."""
        if (of := part(program, self.parts)) is None:
            return False
        return of.own is not None or bool(self._group(program).module.sum)

    def unready(self, wanted: Sequence[Artifact]) -> str | None:
        """Why this machine can't build the parts of *wanted* that are not cached; None if no reason is known.

        Looks for Go, the C compiler and mmdebstrap if they are needed, and asks for one module. Takes seconds.
        """
        groups = dict.fromkeys(self._uncompiled(wanted))
        try:
            for group in groups:
                if group.part.cgo:
                    check_c(group.part.tags)
            if run.find("mmdebstrap") is None and any(self._needs_packages(artifact) for artifact in wanted):
                return "Debian's packages for an image can't be downloaded: mmdebstrap is not installed. " + CURE
            for group in groups:
                if group.part.own is None:
                    check_published(group.module)
                    break
        except WinlabError as error:
            return " ".join(filter(None, (error.what, error.why, error.cure)))
        return None

    def compiles(self, wanted: Iterable[Artifact]) -> bool:
        """Whether something of *wanted* is not cached and would be compiled."""
        return any(True for _ in self._uncompiled(wanted))

    def _uncompiled(self, wanted: Iterable[Artifact]) -> Iterator[_Group]:
        """What would be compiled."""
        for artifact in wanted:
            if isinstance(artifact, Program):
                programs = [artifact]
            elif isinstance(artifact, ContainerImage) and self._image_at_hand(artifact) is None:
                programs = list(self._layout(artifact).programs)
            else:
                continue
            for program in programs:
                group = self._group(program)
                if self._at_hand(group, program) is None:
                    yield group

    def _needs_packages(self, artifact: Artifact) -> bool:
        image = artifact if isinstance(artifact, ContainerImage) else None
        return image is not None and bool(self._layout(image).packages) and self._image_at_hand(image) is None

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """Build one artifact, or take it from the cache. For several, :meth:`obtain_all` is much faster.

        :raises WinlabError: as :meth:`obtain_all`.
        """
        return self.obtain_all([artifact], progress)[0]

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """Build what is not in the cache; programs of one module are compiled together.

        :raises NotFoundError: something can't be built here; then nothing was done.
        :raises HostError: there is no Go, compiler, library, space or mmdebstrap.
        :raises TransferError: a module can't be fetched.
        :raises CommandError: it does not compile, or Debian's packages can't be fetched.
        """
        wanted = list(dict.fromkeys(artifacts))
        if refused := self.cannot(wanted):
            artifact, reason = next(iter(refused.items()))
            raise NotFoundError(f"{artifact} can't be built.", why=f"{reason}.", cure="Choose another source.")
        obtained: dict[Artifact, Obtained] = {}
        for image in wanted:
            if isinstance(image, ContainerImage) and (cached := self._image_at_hand(image)):
                obtained[image] = cached
        images = [artifact for artifact in wanted if isinstance(artifact, ContainerImage) and artifact not in obtained]
        programs = [artifact for artifact in wanted if isinstance(artifact, Program)]
        programs += [program for image in images for program in self._layout(image).programs]
        groups: dict[_Group, list[Program]] = defaultdict(list)
        for program in dict.fromkeys(programs):
            groups[self._group(program)].append(program)
        for group in groups:
            if group.part.cgo:
                check_c(group.part.tags)  # before the long work of the others
        steps = len(groups) + len(images)
        for number, (group, members) in enumerate(groups.items()):
            obtained |= self._programs(group, members, _Share(progress, number / steps))
        for number, image in enumerate(images):
            obtained[image] = self._image(image, obtained, _Share(progress, (len(groups) + number) / steps))
        return [obtained[artifact] for artifact in artifacts]

    def _refusal(self, artifact: Artifact) -> str | None:
        """Why *artifact* is never built here; None if it can be."""
        if isinstance(artifact, Manifest):
            return f"manifests are published, not built; {_ELSEWHERE}"
        if isinstance(artifact, ContainerImage):
            if (of := system.get(artifact.os)).own_layers:
                return f"{of.title} images contain layers of the system, which only its vendor's registry has"
            if build_images.layout(artifact, self.kubernetes, self.builds) is None:
                return f"winlab does not know how to build that image; {_ELSEWHERE}"
            return None
        if part(artifact, self.parts) is not None:
            return None
        if artifact.name in _UNBUILT:
            return f"{_UNBUILT[artifact.name]}; {_ELSEWHERE}"
        if others := systems(artifact.name, self.parts):
            return f"{artifact.name} is built for {' and '.join(others)} only"
        return f"winlab does not know how to build '{artifact.name}'"

    def _layout(self, image: ContainerImage) -> build_images.Layout:
        layout = build_images.layout(image, self.kubernetes, self.builds)
        assert layout is not None, "refused before"
        return layout

    def _group(self, program: Program) -> _Group:
        program_part = part(program, self.parts)
        assert program_part is not None, "refused before"
        version = tag(program.version)
        source = program_part.own or self.sources.get(program_part.module)
        pinned = self._sums.get((program_part.module, version), "") if source is None else ""
        return _Group(program_part, GoModule(program_part.module, version, source, pinned), program.os)

    def _key(self, group: _Group, program: Program, go: Go) -> str:
        package = group.part.packages[program.os][program.name]
        return store.key({**group.inputs, "package": package, "go": go.name})

    def _local(self, group: _Group) -> bool:
        return group.part.own is None and group.module.source is not None

    def _at_hand(self, group: _Group, program: Program) -> tuple[str, Obtained] | None:
        """A program in the cache, with its key, made by any available Go."""
        if self._local(group):
            return None
        for go in toolchain.here():
            key = self._key(group, program, go)
            if cached := store.lookup(key):
                return key, Obtained(program, cached.path, cached.sha256, cached.size, cached.origin)
        return None

    def _programs(self, group: _Group, members: list[Program], progress: Progress) -> dict[Artifact, Obtained]:
        """All *members* of the group, compiled if necessary."""
        obtained: dict[Artifact, Obtained] = {}

        def look() -> list[Program]:
            at_hand = {member: entry for member in members if (entry := self._at_hand(group, member))}
            obtained.update({member: program for member, (_, program) in at_hand.items()})
            return [member for member in members if member not in at_hand]

        if not look():
            return obtained
        with store.locked(store.key(group.inputs), progress, f"{group}"):
            missing = look()  # another winlab may have made some meanwhile
            if missing:
                obtained |= self._compile(group, missing, progress)
        return obtained

    def _compile(self, group: _Group, members: list[Program], progress: Progress) -> dict[Artifact, Obtained]:
        begun = time.monotonic()
        packages = {member: group.part.packages[group.os][member.name] for member in members}
        target = Target(tuple(dict.fromkeys(packages.values())), group.os, group.part.tags, group.part.cgo)
        version = group.module.version
        with store.workspace() as work:
            binaries, go = compile_all(
                group.module, target, lambda released: group.part.stamps(version, released), work, progress
            )
            seconds = (time.monotonic() - begun) / len(members)
            # the folder of winlab's own is another one in each installation
            what = f"winlab's own {group.part.own.name}" if group.part.own is not None else str(group.module)
            origin = f"built from {what} with {go.name}"
            obtained: dict[Artifact, Obtained] = {}
            for member in members:
                file = binaries[packages[member]]
                key = store.key({"built": files.sha256(file)}) if self._local(group) else self._key(group, member, go)
                progress.say(f"keeping {member}")
                obtained[member] = store.keep(key, member, file, origin, seconds=seconds)
        return obtained

    def _image_key(self, image: ContainerImage, digests: Iterable[str]) -> str:
        layout = self._layout(image)
        inputs: dict[str, object] = {"image": image.reference, "layout": build_images.LAYOUT, "programs": [*digests]}
        if layout.packages:
            inputs["packages"] = [debs.SUITE, *layout.packages]
        if layout.recipe:
            inputs["recipe"] = layout.recipe
        return store.key(inputs)

    def _image_at_hand(self, image: ContainerImage) -> Obtained | None:
        """An image in the cache, if its programs are cached, too."""
        digests = []
        for program in self._layout(image).programs:
            program_at_hand = self._at_hand(self._group(program), program)
            if program_at_hand is None:
                return None
            digests.append(program_at_hand[1].sha256)
        return store.lookup(self._image_key(image, digests))

    def _image(self, image: ContainerImage, obtained: Mapping[Artifact, Obtained], progress: Progress) -> Obtained:
        begun = time.monotonic()
        layout = self._layout(image)
        key = self._image_key(image, [obtained[program].sha256 for program in layout.programs])
        with store.locked(key, progress, f"{image}"):
            if cached := store.lookup(key):
                return cached
            with store.workspace() as work:
                target = work / image.file
                programs = {program: obtained[program].path for program in layout.programs}
                build_images.make(image, layout, programs, target, work, progress)
                origin = next(obtained[program].origin for program in layout.programs)
                return store.keep(key, image, target, origin, move=True, seconds=time.monotonic() - begun)


class _Share:
    """Reports the overall progress, for steps that know only their own."""

    def __init__(self, progress: Progress, begin: float) -> None:
        self._progress = progress
        self._begin = begin

    def say(self, text: str, fraction: float | None = None) -> None:  # noqa: ARG002 - that of one step
        self._progress.say(text, self._begin)


def _digest(folder: Path) -> str:
    """A digest of a small folder's files."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
