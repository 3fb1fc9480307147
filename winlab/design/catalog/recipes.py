"""The catalog: which images there are (images/*.yaml).

A recipe either downloads a published image (``download``) or names the builder that makes one (``build``). A builder is
an entry point of the group ``winlab.image_builders``, winlab's own or another package's. It is a module with two
functions, so that nothing else needs to know what it makes, or how:

- ``fingerprint(recipe) -> str``: a digest of everything besides the recipe that the result depends on;
- ``build(request) -> None``: writes the image to ``request.output``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from winlab import data, documents
from winlab.design import system
from winlab.design.system import System
from winlab.errors import HostError, NotFoundError, UsageError
from winlab.events import Progress
from winlab.near import did_you_mean

BUILDERS = "winlab.image_builders"  # the group of entry points


class Download(BaseModel):
    """A published image: where it is, and its required SHA-256 (SHA-512 if the publisher gives only that)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(pattern=r"^https?://")
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    sha512: str | None = Field(default=None, pattern=r"^[0-9a-f]{128}$")
    size: int | None = Field(default=None, gt=0, description="bytes")

    @model_validator(mode="after")
    def _one_digest(self) -> Download:
        if (self.sha256 is None) == (self.sha512 is None):
            raise ValueError("give exactly one of sha256 and sha512")
        return self


class Evaluation(Download):
    """An evaluation medium from Microsoft: after 180 days it asks for a licence."""

    file: str = Field(description="what Microsoft calls it; its links don't say")
    build: str | None = Field(default=None, description="of Windows, where the name does not say it")


class Build(BaseModel):
    """An image that is built locally: its builder, and the builder's options."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    builder: str = Field(pattern=r"^[a-z_][a-z0-9_.-]*$", description="an entry point of winlab.image_builders")
    package: str = Field(default="winlab", description="what to install where the builder is missing")
    options: dict[str, Any] = Field(default_factory=dict)


class Recipe(BaseModel):
    """One image: what it is and where it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    summary: str
    os: Literal["linux", "windows", "none"] = Field(description="none: not a system, but something for one")
    format: Literal["qcow2", "raw", "iso"]
    user: str = Field(default="", description="whom ssh logs in as")
    usual_seconds: int = Field(default=300, description="how long it takes to make or fetch it, roughly")
    usual_boot_seconds: int | None = Field(default=None, description="from power-on to ready, where it differs")
    # Windows media: prefix of the names of install.wim's images
    windows: Literal["2019", "2022", "2025"] | None = None
    stand_in: bool = Field(default=False, description="not the system it names, but a stand-in for rehearsals")
    virtio_drivers: str | None = Field(
        default=None, description="the folder of the media that is laid out as virtio-win; Microsoft's have none"
    )
    memory_mib: int | None = None  # suggested for a node if the role's default is too much
    disk_gib: int | None = None
    cni: str | None = Field(default=None, description="the CNI profile where the spec names none")
    download: Download | None = None
    build: Build | None = None
    setup_keys: dict[str, str] = Field(
        default={}, description="Microsoft's public KMS client setup keys, by standard and datacenter"
    )
    evaluations: tuple[Evaluation, ...] = Field(default=(), description="Microsoft's, the newest first")

    @property
    def system(self) -> System:
        """The system that the image holds; KeyError if it holds none."""
        return system.get(self.os)

    @property
    def is_iso(self) -> bool:
        """Whether it comes as an ISO of its vendor: installation media, drivers."""
        return self.format == "iso" and self.build is None

    @model_validator(mode="after")
    def _one_source(self) -> Recipe:
        if self.download is not None and self.build is not None:
            raise ValueError("give either download or build")
        return self


@dataclass(frozen=True)
class BuildRequest:
    """What a builder gets. ``output`` does not exist yet; ``workdir`` is empty and removed afterwards.

    The builder fills ``packages``: what it used of the distribution, with versions.
    """

    recipe: Recipe
    options: dict[str, Any]
    output: Path
    workdir: Path
    progress: Progress
    mirror: str | None = None  # URL of a mirror of the distribution's archive; None: the host's own
    packages: dict[str, str] = field(default_factory=dict)


class ImageBuilder(Protocol):
    """A module that makes an image."""

    def fingerprint(self, recipe: Recipe) -> str:
        """A digest of everything besides the recipe that the result depends on."""

    def build(self, request: BuildRequest) -> None:
        """Make the image."""

    def note(self, recipe: Recipe) -> str:
        """A note for the user who creates a lab with the image as it is made now; '' if there is none."""


def load(path: Path) -> Recipe:
    """Read one recipe.

    :raises UsageError: the file is not a recipe; the message names the field.
    """
    try:
        recipe = Recipe.model_validate(documents.from_yaml(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise UsageError(
            f"The image recipe '{path}' can't be used.", why=str(error), cure="See docs/images.md."
        ) from error
    if recipe.name != path.stem:
        raise UsageError(f"The image recipe '{path}' is named '{recipe.name}' inside.", cure="Give both the same name.")
    return recipe


@cache
def names() -> tuple[str, ...]:
    """The names of all recipes, sorted."""
    return tuple(sorted(path.stem for path in data.folder("images").glob("*.yaml")))


def systems() -> list[str]:
    """The names of the recipes that nodes can run, sorted."""
    return [name for name in names() if get(name).os != "none"]


def stand_ins(recipe: Recipe) -> list[Recipe]:
    """The stand-ins that replace the system in *recipe*'s image in a rehearsal; none if it needs no replacement."""
    return [other for other in map(get, systems()) if other.stand_in and other.os == recipe.os]


@cache
def get(name: str) -> Recipe:
    """The recipe *name*. Read once: recipes ship with winlab.

    :raises NotFoundError: there is none; the message lists the known ones.
    """
    if name not in names():
        raise NotFoundError(
            f"There is no image named '{name}'.",
            cure=f"{did_you_mean(name, names())}Choose one of: {', '.join(names())}.",
        )
    return load(data.folder("images") / f"{name}.yaml")


def evaluations() -> list[tuple[str, Evaluation]]:
    """All known evaluation media, with the names of their recipes."""
    return [(name, evaluation) for name in names() for evaluation in get(name).evaluations]


def _entry_point(build: Build) -> EntryPoint | None:
    return next(iter(entry_points(group=BUILDERS, name=build.builder)), None)


def has_builder(recipe: Recipe) -> bool:
    """Whether the builder of *recipe*'s image is installed; true if the image is not built."""
    return recipe.build is None or _entry_point(recipe.build) is not None


def builder(recipe: Recipe) -> ImageBuilder:
    """The module that builds *recipe*'s image.

    :raises HostError: it is not installed; the cure names the package.
    """
    assert recipe.build is not None
    entry_point = _entry_point(recipe.build)
    if entry_point is None:
        raise HostError(
            f"The builder of image '{recipe.name}' is not installed.",
            why=f"No installed package has an entry point '{recipe.build.builder}' in the group '{BUILDERS}'.",
            cure=f"Install it: pip install '{recipe.build.package}'.",
        )
    return cast(ImageBuilder, entry_point.load())
