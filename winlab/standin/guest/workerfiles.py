"""Files of a worker: what the scripts' common.ps1 does with them (digests, copies from the payload CD)."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

from winlab.standin.guest.scripts import Machine, ScriptError
from winlab.standin.guest.world import C

MEMORY = C / "Windows/System32/config/standin-digests.json"
ORIGINAL = ".winlab-original"  # the name's end of what push.ps1 put another program in the place of


def digest(path: Path) -> str:
    """SHA-256 of a file; '' if there is none. Remembered by size and time, since it takes seconds for a large one."""
    if not path.is_file():
        return ""
    about = path.stat()
    key = f"{path} {about.st_size} {about.st_mtime_ns} {about.st_ino}"
    kept: dict[str, str] = json.loads(MEMORY.read_text()) if MEMORY.is_file() else {}
    if key not in kept:
        with path.open("rb") as file:
            kept[key] = hashlib.file_digest(file, "sha256").hexdigest()
        partial = MEMORY.with_suffix(".new")
        partial.write_text(json.dumps(kept))
        partial.replace(MEMORY)
    return kept[key]


def listed(machine: Machine, part: str) -> dict[str, str]:
    """The names and digests of one part of payload.json."""
    path = machine.cd / "payload.json"
    if not path.is_file():
        raise ScriptError(f"{machine.letter}:\\ is not winlab's payload CD: it has no payload.json.")
    rows = json.loads(path.read_text(encoding="utf-8")).get(part, {})
    return {name: str(row["sha256"]) for name, row in rows.items()}


def stale(target: Path, expected: str) -> bool:
    """Whether another file is wanted in this place. What push.ps1 put there stays."""
    return not target.with_name(target.name + ORIGINAL).is_file() and digest(target) != expected


def install(source: Path, target: Path, expected: str) -> None:
    """Copy a file of the CD.

    :raises ScriptError: the CD's file is not there, or not the one that payload.json describes.
    """
    if not source.is_file():
        raise ScriptError(f"'{target.name}' is missing on winlab's CD, though payload.json names it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.winlab-new")
    shutil.copyfile(source, partial)
    if digest(partial) != expected:
        partial.unlink()
        raise ScriptError(f"'{target.name}' on winlab's CD is not what payload.json says: its SHA-256 differs.")
    partial.replace(target)


def write(path: Path, text: str) -> bool:
    """Write a file unless it says that already; whether it was written."""
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True
