"""What is kept and reported when Setup comes to a stop: screens compared, partitions of a disk with logs."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from winlab import settings
from winlab.adapters.vm import screen
from winlab.errors import UsageError
from winlab.supply.media import offline

SECTOR = 512


def picture(*boxes: tuple[int, int, int, int], width: int = 640, height: int = 480) -> bytes:
    """A black screen with white boxes (left, top, width, height)."""
    rows = [bytearray(width * 3) for _ in range(height)]
    for left, top, wide, high in boxes:
        for row in rows[top : top + high]:
            row[left * 3 : (left + wide) * 3] = b"\xff" * (wide * 3)
    return b"P6\n%d %d\n255\n" % (width, height) + b"".join(rows)


def test_a_cursor_or_spinner_is_not_progress() -> None:
    before = screen.signature(picture((100, 100, 300, 200)))
    assert not screen.differs(before, screen.signature(picture((100, 100, 300, 200), (500, 400, 30, 30))))
    assert screen.differs(before, screen.signature(picture((100, 100, 300, 200), (100, 350, 400, 60))))
    assert screen.differs(before, b"")
    assert screen.signature(b"PNG") == b""


def disk(path: Path, table: bytes, begin: int) -> Path:
    """A disk of 1,000 sectors whose NTFS begins at one of them."""
    path.write_bytes(table.ljust(begin * SECTOR, b"\0") + b"\xeb\x52\x90NTFS    ".ljust(SECTOR, b"\0"))
    os.truncate(path, 1000 * SECTOR)
    return path


def test_partitions_of_a_gpt_disk(tmp_path: Path) -> None:
    """EFI, MSR and a data partition without NTFS are passed over."""
    rows = b"".join(
        struct.pack("<16s16xQQ", kind, first, last).ljust(128, b"\0")
        for kind, first, last in (
            (b"E" * 16, 40, 50),
            (offline.BASIC_DATA, 51, 60),
            (offline.BASIC_DATA, 100, 199),
        )
    )
    made = disk(tmp_path / "d", b"\0" * SECTOR + offline.GPT.ljust(SECTOR, b"\0") + rows, 100)
    assert list(offline.partitions(made)) == [(100 * SECTOR, 100 * SECTOR)]


def test_partitions_of_an_mbr_disk(tmp_path: Path) -> None:
    row = struct.pack("<4xB3xII", offline.NTFS_TYPE, 64, 500)
    other = struct.pack("<4xB3xII", 0x83, 10, 5)
    made = disk(tmp_path / "d", (b"\0" * 446 + other + row).ljust(2 * SECTOR, b"\0"), 64)
    assert list(offline.partitions(made)) == [(64 * SECTOR, 500 * SECTOR)]


@pytest.mark.parametrize("value", ["abc", "5", "-30", "1.5", "²", "٣٠", "9" * 5000])
def test_bad_stall_seconds(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STALL_SECONDS", value)
    with pytest.raises(UsageError, match="WINLAB_STALL_SECONDS"):
        settings.stall_seconds()
    if value != "5":
        monkeypatch.setenv("WINLAB_SUPPORT_SECONDS", value)
        with pytest.raises(UsageError, match="WINLAB_SUPPORT_SECONDS"):
            settings.support_seconds()
    monkeypatch.setenv("WINLAB_STALL_SECONDS", "")
    assert settings.stall_seconds() == 900
