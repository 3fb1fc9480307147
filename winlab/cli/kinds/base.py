"""What all kinds have, and the kind of failures."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.errors import Failure

MORE = {"extra": "allow"}  # pydantic's setting for a kind with more fields than its class


@dataclass(frozen=True, kw_only=True)
class Item:
    """What the items of all kinds have."""

    name: str


@dataclass(frozen=True)
class Left:
    """What a lab left on a hypervisor that did not answer."""

    hypervisor: str
    nodes: list[str]


@dataclass(frozen=True)
class Error:
    """Why a command failed. The texts are those of the first failure; ``support`` is an archive about it, or empty."""

    what: str
    why: str
    cure: str
    evidence: str
    exit_code: int
    failures: list[Failure]
    support: str
