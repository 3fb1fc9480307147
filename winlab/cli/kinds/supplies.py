"""Kinds of results about hosts, and about what labs are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from winlab.cli.kinds.base import MORE, Item, Left


@dataclass(frozen=True, kw_only=True)
class Bundle(Item):
    """A bundle, with its size in bytes."""

    digest: str
    bytes: int
    contents: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Image(Item):
    """An image: its recipe (``os``, ``source``, ``summary``), and a copy of it in the cache if ``key`` is not null."""

    os: str = ""
    source: str = ""
    summary: str = ""
    key: str | None = None
    kind: str = ""
    size: int | None = None
    sha256: str = ""
    made: str | None = None
    state: str = ""
    imported: str | None = None
    path: str = ""
    golden: dict[str, Any] | None = None
    manifest: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Removal(Item):
    """Something that was removed, or would be.

    :param bytes: what that frees; null if unknown.
    :param place: where it was, such as the cache.
    :param removed: false after ``--dry-run``, if there was nothing, and for what is kept.
    :param kept_for: the snapshots that it is kept for.
    :param left: what of it is on hypervisors that do not answer.
    :param problem: why it may not be gone everywhere.
    """

    removed: bool = True
    bytes: int | None = None
    place: str = ""
    kept_for: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Medium(Item):
    """An ISO. ``usable`` says whether winlab can install from it, ``problems`` why not."""

    __pydantic_config__: ClassVar[Any] = MORE

    path: str
    size: int
    label: str
    sha256: str | None
    known: str | None
    release: str | None
    evaluation: bool | None
    images: list[dict[str, Any]]
    usable: bool
    problems: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Installer(Item):
    """An ISO that installs Windows unattended, and the folder with its passwords and keys."""

    image: str
    computer: str
    credentials: str


@dataclass(frozen=True, kw_only=True)
class Check(Item):
    """A check of a host: ``ok``, ``warn`` or ``fail``. ``hypervisor`` is empty for the host itself."""

    state: str
    detail: str
    why: str
    cure: str
    hypervisor: str = ""


@dataclass(frozen=True, kw_only=True)
class Host(Item):
    """A host that was set up or recovered, and what it can do."""

    facts: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Hypervisor(Item):
    """A hypervisor of the site. What it would say is null if it does not answer; ``show`` adds the last three."""

    uri: str
    problem: str
    answers: bool
    drained: bool
    cpus: int | None
    memory_mib: int | None
    machines: int | None
    labs: list[str] | None
    facts: dict[str, Any] | None = None
    checked: str | None = None
    versions: dict[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class File(Item):
    """A file that was written, and its size."""

    bytes: int

    @classmethod
    def of(cls, path: Path) -> Self:
        """The file at a path."""
        return cls(name=str(path), bytes=path.stat().st_size)


@dataclass(frozen=True, kw_only=True)
class SpecField(Item):
    """A field of the spec, and every way to set it."""

    meaning: str
    values: str
    default: str
    unit: str
    systems: str
    flag: str
    variable: str
    example: str
    secret: bool


@dataclass(frozen=True)
class SpecPool:
    """A pool of workers in a spec."""

    name: str
    count: int
    os: str


@dataclass(frozen=True, kw_only=True)
class Spec(Item):
    """A spec that can be used by name."""

    controllers: int
    workers: list[SpecPool]
    summary: str
    file: str


@dataclass(frozen=True, kw_only=True)
class Lock(Item):
    """A lock file: whether it was written, what differs from before, and how many inputs it has."""

    written: bool
    changes: list[str]
    inputs: int


@dataclass(frozen=True, kw_only=True)
class Setting(Item):
    """A default of the user. ``origin``: ``default``, ``file`` or ``variable``. If unknown, it has no ``variable``."""

    value: str
    origin: str
    variable: str
    help: str


@dataclass(frozen=True, kw_only=True)
class Version(Item):
    """The version of a program, the Python that runs it, and how it was called."""

    version: str
    python: str
    program: str


@dataclass(frozen=True, kw_only=True)
class Topic(Item):
    """A page of the documentation; ``text`` is empty in a list."""

    title: str
    text: str = ""
