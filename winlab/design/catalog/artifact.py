"""What a source of artifacts can be asked for, and what it returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from winlab.design import system
from winlab.design.system import SystemName
from winlab.events import Progress


@dataclass(frozen=True, order=True)
class Program:
    """One executable file for amd64, by its name without ``.exe`` and the version of the release it belongs to."""

    name: str
    version: str
    os: SystemName

    @property
    def file(self) -> str:
        """The name of the file: ``kubelet`` or ``kubelet.exe``."""
        return system.get(self.os).program_file(self.name)

    def __str__(self) -> str:
        return f"{self.file} {self.version} ({self.os})"


@dataclass(frozen=True, order=True)
class ContainerImage:
    """A container image for amd64 by its full reference (``registry.k8s.io/pause:3.10.2``); kept as an OCI archive."""

    reference: str
    os: SystemName

    @property
    def file(self) -> str:
        """The name of the archive: the reference, with characters that file names can't hold replaced."""
        return self.reference.replace("/", "_").replace(":", "_").replace("@", "_") + ".tar"

    def __str__(self) -> str:
        return f"image {self.reference} ({self.os})"


@dataclass(frozen=True, order=True)
class Manifest:
    """A file of Kubernetes objects that a project publishes, by the project's version and the file's name."""

    project: str
    version: str
    name: str

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{self.project}-{self.version}-{self.name}"

    def __str__(self) -> str:
        return f"{self.name} of {self.project} {self.version}"


Artifact = Program | ContainerImage | Manifest


@dataclass(frozen=True)
class Obtained:
    """An available artifact: a local read-only file whose SHA-256 was checked; ``origin`` says where it came from."""

    artifact: Artifact
    path: Path
    sha256: str
    size: int
    origin: str


class Source(Protocol):
    """Where artifacts come from: ``upstream``, ``mirror``, ``bundle`` or ``build``."""

    name: str

    def cannot(self, wanted: Iterable[Artifact]) -> dict[Artifact, str]:
        """The parts of *wanted* that this source can never provide, with reasons. Quick; fetches and builds nothing."""

    def pinned(self, program: Program) -> bool:
        """Whether a digest that was known before verifies what this source gives: one in winlab's pins, the sum of a
        Go module, that of the whole bundle. Nothing else runs on the host."""

    def obtain(self, artifact: Artifact, progress: Progress) -> Obtained:
        """Fetch or build one artifact, or take it from the cache.

        :raises WinlabError: it is unavailable or not as expected; the message names the artifact.
        """

    def obtain_all(self, artifacts: Sequence[Artifact], progress: Progress) -> list[Obtained]:
        """Fetch or build several, returned in the order given; quicker than one by one.

        :raises WinlabError: as :meth:`obtain`.
        """
