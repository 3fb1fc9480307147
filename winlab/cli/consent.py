"""Asks whether the user accepts the terms of Microsoft's evaluation media; only a human can answer."""

from __future__ import annotations

import sys

import typer


def accepted(given: bool, terms: str | None) -> bool:
    """Whether the terms are accepted now: by the flag, or at the terminal if there are any to accept."""
    if given or terms is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return given
    return typer.confirm(f"{terms} Do you accept them?", err=True)
