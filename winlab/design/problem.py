"""A problem with a request, found before anything is touched. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that is not possible as requested: a whole sentence, and the cure."""

    what: str
    cure: str
