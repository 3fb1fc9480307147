"""Pinned artifacts: where each publisher offers them, and their required digests.

Rows of ``images/kubernetes/known-good.yaml`` and of each extension's ``pins.yaml``.

::

    programs:
    - {name: kubelet, version: v1.36.3, os: windows, url: https://dl.k8s.io/..., sha256: ...}
    - {name: ctr, version: 2.3.7, os: linux, url: https://.../containerd-2.3.7-linux-amd64.tar.gz, sha256: ...,
       member: bin/ctr}
    images:
    - {reference: registry.k8s.io/pause:3.10.2, os: windows, digest: "sha256:..."}
    manifests:
    - {project: calico, version: v3.32.1, name: tigera-operator.yaml, url: https://..., sha256: ...}
    modules:
    - {path: k8s.io/kubernetes, version: v1.36.3, sum: "h1:..."}

The digest may be unknown when a row is written. A program or manifest then names the publisher's file of digests
(``sums_url``); an image omits ``digest`` and is fetched by its tag. Only the publisher's TLS certificate protects
such an artifact, until a lab's lock file records its digest.

A module is what the source ``build`` compiles; its sum is that of Go's checksum database (go.dev/ref/mod#go-sum-files).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pydantic import BaseModel, ConfigDict, Field, model_validator

from winlab.design import system
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Program
from winlab.design.system import SystemName
from winlab.errors import HostError

_URL = r"^https?://\S+$"


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FilePin(_Row):
    """A published file, with either one of its digests or the place where its publisher lists them."""

    url: str = Field(pattern=_URL)
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    sha512: str | None = Field(default=None, pattern=r"^[0-9a-f]{128}$")
    sums_url: str | None = Field(
        default=None,
        pattern=_URL,
        description="a bare SHA-256 or SHA-512, or lines 'DIGEST  FILE' as sha256sum writes them",
    )

    @model_validator(mode="after")
    def _one_digest(self) -> FilePin:
        if sum(value is not None for value in (self.sha256, self.sha512, self.sums_url)) != 1:
            raise ValueError("give exactly one of sha256, sha512 and sums_url")
        return self


class ProgramPin(FilePin):
    """A program; ``member`` is its path inside the ``.tar.gz``, ``.tgz`` or ``.zip`` at the URL.

    The digest is that of the downloaded file. Several programs of one archive are several rows.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", description="without .exe")
    version: str
    os: SystemName
    member: str | None = None

    @property
    def artifact(self) -> Program:
        """The program to ask sources for."""
        return Program(self.name, self.version, self.os)


class ImagePin(_Row):
    """A container image; ``digest`` is that of its index, or of its manifest for this system on amd64."""

    reference: str = Field(pattern=r"^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[\w][\w.-]{0,127})?$")
    os: SystemName
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    os_build: str | None = Field(
        default=None,
        pattern=r"^10\.0\.[0-9]+(\.[0-9]+)?$",
        description="Windows: which of the index's images, as '10.0.20348'; None: all, with the index",
    )

    @model_validator(mode="after")
    def _windows_only(self) -> ImagePin:
        if self.os_build is not None and not system.get(self.os).own_layers:
            raise ValueError("os_build is for windows only")
        return self

    @property
    def artifact(self) -> ContainerImage:
        """The image to ask sources for."""
        return ContainerImage(self.reference, self.os)


class ManifestPin(FilePin):
    """A file of Kubernetes objects."""

    project: str
    version: str
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")

    @property
    def artifact(self) -> Manifest:
        """The manifest to ask sources for."""
        return Manifest(self.project, self.version, self.name)


class ModulePin(_Row):
    """A published Go module; ``sum`` is that of all its files, as in a go.sum."""

    path: str
    version: str = Field(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+")
    sum: str = Field(pattern=r"^h1:[A-Za-z0-9+/]{43}=$")


class Pins(_Row):
    """All rows, each artifact and each module once. Iterating gives those of artifacts."""

    programs: tuple[ProgramPin, ...] = ()
    images: tuple[ImagePin, ...] = ()
    manifests: tuple[ManifestPin, ...] = ()
    modules: tuple[ModulePin, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Pins:
        seen: set[Artifact] = set()
        for row in self:
            if row.artifact in seen:
                raise ValueError(f"{row.artifact} is pinned twice")
            seen.add(row.artifact)
        places: set[tuple[str, str | None]] = set()
        for pin in self.programs:
            if (pin.url, pin.member) in places:
                raise ValueError(f"{pin.url} ({pin.member or 'whole'}) is two programs")
            places.add((pin.url, pin.member))
        if len(self.module_sums) < len(self.modules):
            raise ValueError("a module is pinned twice")
        return self

    def __iter__(self) -> Iterator[ProgramPin | ImagePin | ManifestPin]:  # type: ignore[override]
        yield from self.programs
        yield from self.images
        yield from self.manifests

    @property
    def module_sums(self) -> dict[tuple[str, str], str]:
        """The sums of modules, by path and version."""
        return {(pin.path, pin.version): pin.sum for pin in self.modules}

    def with_those_of(self, others: Iterable[Pins]) -> Pins:
        """These rows and those of *others*; a row may occur in several of them.

        :raises HostError: two rows for the same artifact or module differ.
        """
        every = (self, *others)
        rows: dict[Artifact, ProgramPin | ImagePin | ManifestPin] = {}
        for pin in (pin for pins in every for pin in pins):
            if rows.setdefault(pin.artifact, pin) != pin:
                raise _in_two_ways(str(pin.artifact), rows[pin.artifact], pin)
        modules: dict[tuple[str, str], ModulePin] = {}
        for module in (module for pins in every for module in pins.modules):
            if (held := modules.setdefault((module.path, module.version), module)) != module:
                raise _in_two_ways(f"The Go module {module.path} {module.version}", held, module)
        return Pins(
            modules=tuple(modules.values()),
            programs=tuple(row for row in rows.values() if isinstance(row, ProgramPin)),
            images=tuple(row for row in rows.values() if isinstance(row, ImagePin)),
            manifests=tuple(row for row in rows.values() if isinstance(row, ManifestPin)),
        )

    def program(self, program: Program) -> ProgramPin | None:
        """The row of *program*, or None."""
        return next((pin for pin in self.programs if pin.artifact == program), None)

    def image(self, image: ContainerImage) -> ImagePin | None:
        """The row of *image*, or None."""
        return next((pin for pin in self.images if pin.artifact == image), None)

    def manifest(self, manifest: Manifest) -> ManifestPin | None:
        """The row of *manifest*, or None."""
        return next((pin for pin in self.manifests if pin.artifact == manifest), None)


def _in_two_ways(what: str, one: BaseModel, other: BaseModel) -> HostError:
    return HostError(
        f"{what} is pinned in two ways.",
        why=f"{one.model_dump(exclude_none=True)} and {other.model_dump(exclude_none=True)}",
        cure="Make the rows of the extensions agree, or use only one of the extensions.",
    )
