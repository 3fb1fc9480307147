"""The PowerShell engine for the media: the one that WINLAB_POWERSHELL names, if it has the fakes' types."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from winlab.errors import UsageError
from winlab.run import run

VARIABLE = "WINLAB_POWERSHELL"
PROGRAM = "winlab-ps"
CURE = "Install the package squashfs-tools."
# Only winlab's own engine loads the fakes of Windows
_ASK = "[bool]('Winlab.Doubles.Machine' -as [type])"


def folder() -> Path | None:
    """The folder with the engine and its libraries; None if the variable names none, or another PowerShell.

    :raises UsageError: the variable names no program.
    """
    return checked(Path(named())) if named() else None


def named() -> str:
    """The program that the variable names; '' without the variable."""
    return os.environ.get(VARIABLE, "")


@functools.cache
def checked(program: Path) -> Path | None:
    """The folder of a program, if it is winlab's engine.

    :raises UsageError: it is not a program.
    """
    if not os.access(program, os.X_OK):
        raise UsageError(f"{VARIABLE} is '{program}', which is no program.", cure="Correct it, or unset it.")
    words: list[str | Path] = [program, "-NoProfile", "-NonInteractive", "-Command", _ASK]
    told = run(words, env={"WINLAB_PS_PRELUDE": "", "NO_COLOR": "1"}, check=False)
    fits = told.stdout.strip() == "True" and program.name == PROGRAM
    return program.resolve().parent if fits else None


@functools.cache
def digest(place: Path) -> str:
    """The SHA-256 of the names and sizes of an engine's files, and of its program."""
    rows = [(path.relative_to(place), path.stat()) for path in sorted(place.rglob("*")) if path.is_file()]
    whole = hashlib.sha256("".join(f"{name} {about.st_size}\n" for name, about in rows).encode())
    whole.update((place / PROGRAM).read_bytes())
    return whole.hexdigest()


def pack(place: Path, target: Path) -> None:
    """The engine as a squashfs, with its program under the name that the guest expects."""
    target.unlink(missing_ok=True)
    run(["mksquashfs", place, target, "-comp", "zstd", "-b", "256K", "-noappend", "-quiet", "-all-root"], cure=CURE)
