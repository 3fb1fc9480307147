"""The user's own programs in place of a source's, such as ``--kubelet``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from winlab import files
from winlab.design.catalog.artifact import Artifact, ContainerImage, Obtained, Program, Source
from winlab.design.system import SYSTEMS
from winlab.errors import UsageError
from winlab.events import Progress
from winlab.supply.artifacts import executable, store
from winlab.supply.artifacts.oci import write

Replaced = Program | ContainerImage  # in an image, the program of the same name is replaced
PLACE = "/usr/local/bin"  # of the program in a component's image (build/server-image of Kubernetes)


class OverriddenSource:
    """A source in which the user's files replace programs."""

    def __init__(self, source: Source, overrides: Mapping[Replaced, Path]) -> None:
        """Make the source.

        :raises UsageError: a file does not exist or is not a program for its system on amd64.
        """
        for replaced, path in overrides.items():
            check(replaced, path)
        self.name = source.name
        self._source = source
        self._overrides = dict(overrides)

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """As the underlying source, for what is not replaced; an image comes from it, except for the program."""
        return self._source.cannot([one for one in wanted if not self._is_brought(one)])

    def pinned(self, program: Program) -> bool:
        """As the underlying source; a file that the user named is meant to be what it is."""
        return self._is_brought(program) or self._source.pinned(program)

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """The user's file in its current state, copied into the cache; otherwise the source's artifact.

        :raises UsageError: the file no longer exists or is no longer such a program.
        :raises WinlabError: as the source.
        """
        return self.obtain_all([artifact], progress)[0]

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for several."""
        obtained: dict[Artifact, Obtained] = {}
        for artifact in artifacts:
            if isinstance(artifact, Program) and artifact in self._overrides:
                obtained[artifact] = self._own(artifact)
        others = [artifact for artifact in artifacts if artifact not in obtained]
        for base in self._source.obtain_all(others, progress):
            obtained[base.artifact] = self._with_own(base) if base.artifact in self._overrides else base
        return [obtained[artifact] for artifact in artifacts]

    def _is_brought(self, artifact: Artifact) -> bool:
        return isinstance(artifact, Program) and artifact in self._overrides

    def _own(self, program: Program) -> Obtained:
        path = self._overrides[program]
        check(program, path)
        with store.workspace() as work:
            copy, digest = _copy(path, work / program.file)
            key = store.key({"own": str(program), "sha256": digest, "from": str(path)})
            return store.lookup(key) or store.keep(key, program, copy, f"your own build '{path}'", move=True)

    def _with_own(self, base: Obtained) -> Obtained:
        image = base.artifact
        assert isinstance(image, ContainerImage)
        path = self._overrides[image]
        check(image, path)
        with store.workspace() as work:
            copy, digest = _copy(path, work / "program")
            key = store.key({"own": str(image), "sha256": digest, "from": str(path), "in": base.sha256})
            if cached := store.lookup(key):
                return cached
            (work / "blobs").mkdir()
            target = work / image.file
            file = write.LayerFile(f"{PLACE}/{_component(image)}", copy)
            write.add_layer(base.path, target, image, [file], work=work / "blobs")
            return store.keep(key, image, target, f"{base.origin}, with your own build '{path}'", move=True)


def meant(name: str, path: Path, wanted: Iterable[Artifact]) -> Replaced:
    """The part of *wanted* that the file *path* replaces: the program *name* for the file's system.

    :raises UsageError: the file is not a program, or the lab uses none of that name and system.
    """
    try:
        system, kind = executable.system_of(path), executable.describe(path)
    except OSError as error:
        raise UsageError(f"'{path}' can't be used as {name}.", why=str(error)) from error
    if system is None:
        raise UsageError(
            f"'{path}' can't be used as {name}.",
            why=f"It is {kind}, but should be a {' or '.join(one.title for one in SYSTEMS)} program for amd64.",
            cure=f"Build it with {' or '.join(f'GOOS={one.name}' for one in SYSTEMS)}, and GOARCH=amd64.",
        )
    for artifact in wanted:
        if isinstance(artifact, Program) and (artifact.name, artifact.os) == (name, system.name):
            return artifact
        if isinstance(artifact, ContainerImage) and (_component(artifact), artifact.os) == (name, system.name):
            return artifact
    raise UsageError(
        f"'{path}' is for {system.title}, but the lab has no {name} for that system.",
        cure="Leave it out, or add a node with that system to the lab.",
    )


def check(replaced: Replaced, path: Path) -> None:
    """Check that *path* can replace a program, or the one in an image.

    :raises UsageError: it can't; nothing was touched.
    """
    try:
        why = executable.problem(path, replaced.os)
    except OSError as error:
        raise UsageError(f"'{path}' can't be used as {replaced}.", why=str(error)) from error
    if why:
        raise UsageError(
            f"'{path}' can't be used as {replaced}.",
            why=why,
            cure=f"Build it with GOOS={replaced.os} GOARCH=amd64.",
        )


def _component(image: ContainerImage) -> str:
    return image.reference.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _copy(path: Path, copy: Path) -> tuple[Path, str]:
    """A copy and its SHA-256, so that the digest is right even if the file is rebuilt meanwhile."""
    shutil.copyfile(path, copy)
    return copy, files.sha256(copy)
