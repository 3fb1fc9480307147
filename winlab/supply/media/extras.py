"""What a person adds to their Windows nodes: scripts, files, drivers. It goes onto the answer ISO."""

from __future__ import annotations

from pathlib import Path

from winlab.design.plan.model import WindowsPlan
from winlab.errors import UsageError
from winlab.supply.media import drivers
from winlab.supply.media.small_iso import JOLIET_NAME

SCRIPTS = "winlab/scripts"
FILES = "winlab/files"
LARGEST = (1 << 32) - 1  # bytes of a file that Windows reads from an ISO 9660 tree


def stage(windows: WindowsPlan) -> dict[str, Path]:
    """The person's own things by their paths on the answer ISO.

    :raises UsageError: something is not there, or not what it should be.
    """
    found: dict[str, Path] = {}
    for number, script in enumerate(windows.scripts, 1):
        if script.suffix.lower() != ".ps1" or not script.is_file():
            raise UsageError(
                f"'{script}' can't be run in Windows nodes.",
                why="It is no file whose name ends in .ps1." if script.exists() else "There is no such file.",
                cure="workers.scripts takes PowerShell scripts.",
            )
        found[f"{SCRIPTS}/{number:02}-{script.name}"] = script
    if windows.files is not None:
        found |= _tree(windows.files, FILES, "workers.files")
    for number, folder in enumerate(windows.extra_drivers, 1):
        tree = _tree(folder, f"{drivers.TARGET}/own-{number}", "workers.extra_drivers")
        if not any(name.lower().endswith(".inf") for name in tree):
            raise UsageError(
                f"There are no drivers in '{folder}'.",
                why="It has no .inf file.",
                cure="Give the folder that a driver's package was unpacked to.",
            )
        found |= tree
    for path in found.values():
        if path.stat().st_size > LARGEST:
            raise UsageError(
                f"'{path}' is too large for an answer ISO.",
                why="Files there have less than 4 GiB.",
                cure="Have a script in workers.scripts fetch it.",
            )
    return found


def _tree(folder: Path, target: str, field: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise UsageError(f"There is no folder '{folder}'.", cure=f"{field} takes a folder.")
    found: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if any(len(part) > JOLIET_NAME for part in path.relative_to(folder).parts):
            raise UsageError(
                f"The name '{name}' in '{folder}' is too long for an answer ISO.",
                cure=f"Give it at most {JOLIET_NAME} characters.",
            )
        if path.is_file():
            found[f"{target}/{name}"] = path
    return found
