"""The user for whom winlab works, and who owns a lab. Not a boundary: anyone who may use libvirt may do everything."""

from __future__ import annotations

import os
import pwd
from collections.abc import Collection
from pathlib import Path

from winlab.errors import UsageError


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


def running() -> str:
    """The name of the user that programs run as: under sudo root, not the caller."""
    return name(os.geteuid())


def others(owners: Collection[int | None]) -> str:
    """The names of the users who made something; empty if this one is among them, or none is known."""
    known = sorted({one for one in owners if one is not None})
    return "" if uid() in known else " and ".join(map(name, known))


def expanded(path: str | Path) -> Path:
    """A path that the user gave, with the home in place of ``~`` or ``~USER`` at its begin.

    :raises UsageError: no user has that home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise _unknown(path, error) from error


def followed(path: str | Path) -> Path:
    """As :func:`expanded`, absolute and with its links followed. It need not exist.

    :raises UsageError: no user has that home, or the links are circular.
    """
    try:
        return expanded(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: a NUL byte
        raise _unknown(path, error) from error


def _unknown(path: str | Path, error: Exception) -> UsageError:
    return UsageError(f"The path '{path}' can't be resolved.", why=str(error))
