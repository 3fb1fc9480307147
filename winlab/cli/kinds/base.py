"""What all kinds have, and the kind of failures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from winlab.errors import Failure

MORE = {"extra": "allow"}  # pydantic's setting for a kind with more fields than its class


@dataclass(frozen=True, kw_only=True)
class Item:
    """What the items of all kinds have."""

    name: str

    @classmethod
    def made_of(cls, value: Any, name: str, **more: Any) -> Self:
        """An item with the fields of a dataclass.

        :param name: the field that becomes the item's name.
        :param more: further fields.
        """
        fields = asdict(value)
        return cls(name=fields.pop(name), **more, **fields)


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
