"""What is kept and told when Setup comes to a stop: screens compared, logs read off a disk, known causes."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from winlab import settings
from winlab.adapters.vm import screen
from winlab.errors import UsageError
from winlab.steps.windows import known_failures, setup_logs
from winlab.supply.media import offline

SECTOR = 512


def picture(*boxes: tuple[int, int, int, int], width: int = 640, height: int = 480) -> bytes:
    """A black screen with white boxes (left, top, width, height)."""
    rows = [bytearray(width * 3) for _ in range(height)]
    for left, top, wide, high in boxes:
        for row in rows[top : top + high]:
            row[left * 3 : (left + wide) * 3] = b"\xff" * (wide * 3)
    return b"P6\n%d %d\n255\n" % (width, height) + b"".join(rows)


def test_a_cursor_or_spinner_is_no_progress() -> None:
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


@pytest.mark.parametrize("how", ["utf-16", "utf-8", "utf-8-sig"])
def test_logs_in_windows_encodings(how: str) -> None:
    assert setup_logs.text("Fehler für 中".encode(how)) == "Fehler für 中"


@pytest.mark.parametrize(
    ("log", "cure"),
    [
        ("Error 0x80070103 - 0x40031 occurred", "workers.extra_drivers"),
        ("CDlpActionDriverInstallation::ExecuteUnattendDriverInstall(1): Result = 0x80070103", "workers.bus=sata"),
        ("0xD000A000-0x40031", "workers.bus=sata"),
        ("0x80070001 - 0x40030", "exit /b 0"),
        ("Result = 0x80220005", "Shorten"),
        ("0x80070002 - 0x40030", "DiskConfiguration"),
        ("0x8007000D", "workers.template"),
        ("the unattend answer file contains an invalid product key", "take none"),
        ("while applying the unattend answer file's <ImageInstall> setting", "iso inspect"),
        ("the <DiskConfiguration> setting. Error code: 0x80042565", "workers.firmware"),
        ("could not parse or process unattend answer file [E:\\x]", "workers.template"),
        ("0x80070570", "--sha256"),
        ("SYSPRP Failed to remove apps for the current user: 0x80073cf2.", "workers.scripts"),
    ],
)
def test_known_causes_come_with_their_cures(log: str, cure: str) -> None:
    found = known_failures.recognise(f"12:00 Info\n12:01 Error {log}\n")
    assert found is not None
    assert cure in found.cure


ACTIVITY = """\
2026-01-01 10:00:00, Info       IBS    Callback_ImageInstall: selected image index 2
2026-01-01 10:00:01, Info       IBS    disk 0 is a GPT disk
2026-01-01 10:00:02, Warning    IBS    the password policy was not read
2026-01-01 10:00:03, Error                 IBS    Setup failed{}
2026-01-01 10:00:04, Info       SYSPRP RebootPending: no
"""


@pytest.mark.parametrize("name", [log for log in setup_logs.LOGS if log.endswith("setupact.log")])
def test_what_harmless_entries_say_is_no_cause(name: str) -> None:
    assert known_failures.recognise(ACTIVITY) is not None
    assert known_failures.recognise(setup_logs.telling(name, ACTIVITY.encode("utf-16"))) is None
    for more in (": 0x80070570", "\r\nError code: 0x80070570"):
        trap = known_failures.recognise(setup_logs.telling(name, ACTIVITY.format(more).encode()))
        assert trap is not None
        assert "--sha256" in trap.cure


@pytest.mark.parametrize("name", [log for log in setup_logs.LOGS if not log.endswith("setupact.log")])
def test_all_of_the_other_logs_counts(name: str) -> None:
    text = "the password policy of Windows refuses it"
    assert setup_logs.telling(name, text.encode()) == text


def test_other_causes_are_not_guessed() -> None:
    assert known_failures.recognise("IBS Info: all went well, disk 0 was formatted") is None


@pytest.mark.parametrize("value", ["abc", "5", "-30", "1.5"])
def test_bad_stall_seconds(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STALL_SECONDS", value)
    with pytest.raises(UsageError, match="WINLAB_STALL_SECONDS"):
        settings.stall_seconds()
    monkeypatch.setenv("WINLAB_STALL_SECONDS", "")
    assert settings.stall_seconds() == 900
