"""What it takes to carry out a plan, as a value; :mod:`winlab.operations.verdict` finds it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from winlab.errors import WinlabError


@dataclass(frozen=True)
class Missing:
    """Something that create must get first.

    :param size: in bytes; None if unknown.
    :param seconds: how long that usually takes, roughly.
    """

    what: str
    how: Literal["download", "build"]
    size: int | None
    seconds: float


@dataclass(frozen=True)
class Room:
    """What machines need on one hypervisor, and what it has, in MiB."""

    hypervisor: str
    memory: int
    free_memory: int
    disk: int
    free_disk: int


@dataclass(frozen=True)
class Verdict:
    """What it takes to make a lab.

    :param missing: what is downloaded or built first.
    :param source: where Kubernetes comes from, a sentence; empty if unknown.
    :param refused: why it can't come from anywhere.
    :param seconds: how long create takes; None if unknown.
    :param estimated: some of the time was not measured on this host yet.
    :param rooms: of each hypervisor with machines that are not running yet.
    :param unknown: why the hypervisors could not be asked; empty if they were.
    """

    missing: tuple[Missing, ...]
    source: str = ""
    refused: WinlabError | None = None
    seconds: float | None = None
    estimated: bool = False
    rooms: tuple[Room, ...] = ()
    unknown: str = ""
