"""Disks in the format qcow2: the part that winlab reads itself, and an answer of qemu-img."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from winlab.run import Result
from winlab.supply import disk_format


def qcow2(
    content: bytes = b"", *, backing: str = "", features: int = 0, encryption: int = 0, version: int = 3
) -> bytes:
    """A disk's header, with its content after it."""
    place = 104 if backing else 0
    head = struct.pack(">4sIQIIQI", b"QFI\xfb", version, place, len(backing), 16, 1 << 20, encryption).ljust(72, b"\0")
    return (head + struct.pack(">Q", features)).ljust(104, b"\0") + backing.encode() + content


def answer(monkeypatch: pytest.MonkeyPatch, told: str = '{"format": "qcow2"}') -> list[tuple[str, ...]]:
    """Let qemu-img give this answer for every disk; return its calls."""
    asked: list[tuple[str, ...]] = []

    def run(args: Any, **_: Any) -> Result:
        asked.append(tuple(map(str, args)))
        return Result(asked[-1], 0, told, "", 0.0)

    monkeypatch.setattr(disk_format, "run", run)
    return asked
