"""What is wrong with a wish, before anything is touched. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that can't be as it was asked for: a whole sentence, and the cure."""

    what: str
    cure: str
