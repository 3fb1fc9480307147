"""Asks whether the user accepts the terms of Microsoft's evaluation media; only a human can answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from winlab.site import Site


def accepted(given: bool, needed: bool, site: Site) -> bool:
    """Whether the terms are accepted now: by the flag, or at the terminal if needed and not accepted before."""
    from winlab.operations import consent

    if given or not needed or consent.is_given(site) or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return given
    return typer.confirm(f"{consent.TERMS} Do you accept them?", err=True)
