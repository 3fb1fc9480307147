"""Programs of the person's own in place of a source's: ``--kubelet``, ``--kubeadm``, ``--kube-proxy``."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from winlab.artifacts import executable, store
from winlab.artifacts.model import Artifact, Obtained, Program, Source
from winlab.errors import UsageError
from winlab.events import Progress


class OverriddenSource:
    """A source, but for the programs that the person brings as files."""

    def __init__(self, source: Source, overrides: Mapping[Program, Path]) -> None:
        """Make the source.

        :raises UsageError: a file is not there, or no program for its system on amd64.
        """
        for program, path in overrides.items():
            check(program, path)
        self.name = source.name
        self._source = source
        self._overrides = dict(overrides)

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """As the source under it, for what is not brought."""
        return self._source.cannot([artifact for artifact in wanted if artifact not in self._overrides])

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """The file that was brought, as it is now, copied into the cache; else what the source gives.

        :raises UsageError: the file is not there any more, or has become something else.
        :raises WinlabError: as the source.
        """
        if not isinstance(artifact, Program) or artifact not in self._overrides:
            return self._source.obtain(artifact, progress)
        return self._own(artifact)

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """As :meth:`obtain`, for several."""
        found: dict[Artifact, Obtained] = {}
        for artifact in artifacts:
            if isinstance(artifact, Program) and artifact in self._overrides:
                found[artifact] = self._own(artifact)
        others = [artifact for artifact in artifacts if artifact not in found]
        found.update((one.artifact, one) for one in self._source.obtain_all(others, progress))
        return [found[artifact] for artifact in artifacts]

    def _own(self, program: Program) -> Obtained:
        path = self._overrides[program]
        check(program, path)
        with store.workspace() as work:
            copy = work / program.file
            shutil.copyfile(path, copy)  # so that the key is of what goes in, even if it is rebuilt meanwhile
            with copy.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            key = store.key({"own": str(program), "sha256": digest, "from": str(path)})
            return store.lookup(key) or store.keep(key, program, copy, f"your own build '{path}'", move=True)


def check(program: Program, path: Path) -> None:
    """See that *path* can stand in for *program*.

    :raises UsageError: it can't; nothing was touched.
    """
    try:
        why = executable.problem(path, program.os)
    except OSError as error:
        raise UsageError(f"'{path}' can't be taken for {program}.", why=str(error)) from error
    if why:
        raise UsageError(
            f"'{path}' can't be taken for {program}.",
            why=why,
            cure=f"Build it with GOOS={program.os} GOARCH=amd64.",
        )
