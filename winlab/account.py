"""The user for whom winlab works, and whose a lab is. No boundary: whoever may use libvirt may do all."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection


def uid() -> int:
    """The user's id; behind sudo the caller's, so that a lab is the same person's with sudo or without."""
    caller = os.environ.get("SUDO_UID", "")
    return int(caller) if os.geteuid() == 0 and caller.isascii() and caller.isdigit() else os.geteuid()


def name(number: int) -> str:
    """A user's name, or the id if there is no such user here."""
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OverflowError):
        return f"user {number}"


def others(owners: Collection[int | None]) -> str:
    """The names of the users who made something; empty if this one is among them, or nobody is known."""
    known = sorted({one for one in owners if one is not None})
    return "" if uid() in known else " and ".join(map(name, known))
