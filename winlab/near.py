"""Finds what a misspelt name was meant to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 3  # guesses


def near(word: str, names: Iterable[str]) -> list[str]:
    """The names most like *word*, the best first; capitals don't count."""
    lower = {name.lower(): name for name in names}
    return [lower[one] for one in difflib.get_close_matches(word.lower(), lower, MOST)]


def guess(word: str, names: Iterable[str]) -> str:
    """The names most like *word*, quoted, as part of a sentence; empty if there are none."""
    return " or ".join(f"'{one}'" for one in near(word, names))


def choose_from(word: str, names: Iterable[str]) -> str:
    """``did you mean 'cpus'? Choose from bus, cpus``: the end of a sentence about a name that is not one of these."""
    known = list(names)
    found = guess(word, known)
    return f"did you mean {found}? Choose from {', '.join(known)}" if found else f"choose from {', '.join(known)}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """``Did you mean 'node-1'? `` with a blank at the end, to begin a cure; empty if no name is similar."""
    found = guess(word, names)
    return f"Did you mean {found}? " if found else ""
