"""What is in a bundle: the rows of ``bundle.json``. See :mod:`winlab.supply.artifacts.bundle.file`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.catalog.recipes import Recipe
from winlab.design.system import SystemName
from winlab.supply.images import cache
from winlab.supply.images.cache import CachedImage

_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# no separators: these become parts of file names
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FileRow(_Row):
    """A file in the bundle: its member is named by its SHA-256, so equal files are stored once."""

    sha256: _Hex
    size: int = Field(ge=0, description="bytes")

    @property
    def member(self) -> str:
        """The name of the tar member."""
        return f"files/{self.sha256}"


class ProgramRow(FileRow):
    """A program."""

    kind: Literal["program"] = "program"
    name: _Name
    version: _Name
    os: SystemName
    origin: str

    @property
    def artifact(self) -> Program:
        """What it is."""
        return Program(self.name, self.version, self.os)


class ImageRow(FileRow):
    """A container image, as an OCI archive."""

    kind: Literal["image"] = "image"
    reference: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@+-]*$")
    os: SystemName
    origin: str

    @property
    def artifact(self) -> ContainerImage:
        """What it is."""
        return ContainerImage(self.reference, self.os)


class ManifestRow(FileRow):
    """A file of Kubernetes objects."""

    kind: Literal["manifest"] = "manifest"
    project: _Name
    version: _Name
    name: _Name
    origin: str

    @property
    def artifact(self) -> Manifest:
        """What it is."""
        return Manifest(self.project, self.version, self.name)


class MediaRow(FileRow):
    """An image of winlab's catalog (qcow2, raw, iso) from the cache: its recipe and key.

    A built image also has the distribution's packages in it.
    """

    key: _Hex
    recipe: Recipe
    packages: dict[str, str] = {}


class OwnMediaRow(_Row):
    """The user's own medium (Windows): not in the bundle, only listed with its digest."""

    name: str
    sha256: _Hex
    size: int = Field(ge=0)


ArtifactRow = Annotated[ProgramRow | ImageRow | ManifestRow, Field(discriminator="kind")]


class Contents(_Row):
    """``bundle.json``."""

    format: Literal[1] = 1
    inputs: dict[str, Any] = Field(default_factory=dict, description="what the bundle was made for: spec, versions")
    artifacts: tuple[ArtifactRow, ...] = ()
    media: tuple[MediaRow, ...] = ()
    own_media: tuple[OwnMediaRow, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> Contents:
        whats: list[object] = [row.artifact for row in self.artifacts]
        whats += [row.key for row in self.media]
        if len(whats) != len(set(whats)):
            raise ValueError("something is listed twice")
        sizes: dict[str, int] = {}
        for row in (*self.artifacts, *self.media):
            if sizes.setdefault(row.sha256, row.size) != row.size:
                raise ValueError(f"{row.sha256} is listed with two sizes")
        return self

    def files(self) -> Iterator[FileRow]:
        """One row for each member, in the members' order."""
        rows: dict[str, FileRow] = {}
        for row in (*self.artifacts, *self.media):
            rows.setdefault(row.member, row)
        yield from rows.values()

    def to_json(self) -> bytes:
        """The same contents give the same bytes."""
        return (json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n").encode()


def artifact_row(obtained: Obtained) -> ProgramRow | ImageRow | ManifestRow:
    """The row of an available artifact."""
    artifact: Artifact = obtained.artifact
    common: dict[str, Any] = {"sha256": obtained.sha256, "size": obtained.size, "origin": obtained.origin}
    if isinstance(artifact, Program):
        return ProgramRow(name=artifact.name, version=artifact.version, os=artifact.os, **common)
    if isinstance(artifact, ContainerImage):
        return ImageRow(reference=artifact.reference, os=artifact.os, **common)
    return ManifestRow(project=artifact.project, version=artifact.version, name=artifact.name, **common)


def media_row(image: CachedImage) -> MediaRow:
    """The row of an image of the catalog."""
    packages = cache.manifest(image).get("packages", {})
    return MediaRow(sha256=image.sha256, size=image.size, key=image.key, recipe=image.recipe, packages=packages)


def what(row: FileRow) -> str:
    """A row's description, for messages."""
    if isinstance(row, MediaRow):
        return f"image '{row.recipe.name}'"
    return str(row.artifact) if isinstance(row, ProgramRow | ImageRow | ManifestRow) else row.member
