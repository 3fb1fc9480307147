"""Files of a worker: what the scripts' common.ps1 does with them (digests, copies from the payload CD)."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from typing import NamedTuple

from winlab_standin.guest import kept
from winlab_standin.guest.machine import Machine, ScriptError
from winlab_standin.guest.place import C

MEMORY = C / "Windows/System32/config/standin-digests.json"
ORIGINAL = ".winlab-original"  # suffix of the name under which push.ps1 keeps the original program


class Listed(NamedTuple):
    """A file as payload.json has it."""

    sha256: str
    crc32: int | None = None


def digest(path: Path) -> str:
    """SHA-256 of a file; '' if there is none. It is cached by size and time, because a large file takes seconds."""
    if not path.is_file():
        return ""
    kept = _remembered()
    if _key(path) not in kept:
        with path.open("rb") as file:
            value = hashlib.file_digest(file, "sha256").hexdigest()
        _remember(path, value)
        return value
    return kept[_key(path)]


def _key(path: Path) -> str:
    about = path.stat()  # without the name: a file that gets its final name is still the same
    return f"{about.st_dev} {about.st_ino} {about.st_size} {about.st_mtime_ns}"


def _remembered() -> dict[str, str]:
    found: dict[str, str] = json.loads(MEMORY.read_text()) if MEMORY.is_file() else {}
    return found


def _remember(path: Path, value: str) -> None:
    with kept.locked(MEMORY):
        kept.write(MEMORY, json.dumps({**_remembered(), _key(path): value}))


def listed(machine: Machine, part: str) -> dict[str, Listed]:
    """One part of payload.json, by names."""
    path = machine.cd / "payload.json"
    if not path.is_file():
        raise ScriptError(f"{machine.letter}:\\ is not winlab's payload CD: it has no payload.json.")
    rows = json.loads(path.read_text(encoding="utf-8")).get(part, {})
    return {name: Listed(str(row["sha256"]), row.get("crc32")) for name, row in rows.items()}


def stale(target: Path, expected: Listed) -> bool:
    """Whether another file must be installed here. A file that push.ps1 put there stays."""
    return not target.with_name(target.name + ORIGINAL).is_file() and digest(target) != expected.sha256


def install(source: Path, target: Path, expected: Listed) -> None:
    """Copy a file of the CD, and compare its CRC-32, if payload.json has one. The host has checked the SHA-256 of what
    it put on the CD, and an emulated CPU takes a minute for that of all programs.

    :raises ScriptError: the CD's file is missing, or not the one that payload.json describes.
    """
    if not source.is_file():
        raise ScriptError(f"'{target.name}' is missing on winlab's CD, though payload.json names it.")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.winlab-new")
    check = 0
    with source.open("rb") as reader, partial.open("wb") as writer:
        while piece := reader.read(1 << 20):
            check = zlib.crc32(piece, check)
            writer.write(piece)
    right = check == expected.crc32 if expected.crc32 is not None else digest(partial) == expected.sha256
    if not right:
        partial.unlink()
        raise ScriptError(f"'{target.name}' on winlab's CD is not what payload.json says: its checksum differs.")
    _remember(partial, expected.sha256)
    partial.replace(target)


def write(path: Path, text: str) -> bool:
    """Write a file unless it has that text already; returns whether it was written."""
    content = text.encode("utf-8")
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True
