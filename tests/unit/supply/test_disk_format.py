"""Untrusted disks: none may name a file of the host, nor differ from its declared format."""

from __future__ import annotations

import json
from pathlib import Path

import disks
import pytest

from winlab.errors import UsageError
from winlab.run import CommandError, Result
from winlab.supply import disk_format


def check(path: Path, content: bytes, declared: disk_format.Format = "qcow2") -> None:
    path.write_bytes(content)
    disk_format.check(path, declared, "the file")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (disks.qcow2(backing="/root/.ssh/id_ed25519"), "a backing file"),
        (disks.qcow2(features=4), "in another file"),
        (disks.qcow2(encryption=2), "encrypted"),
        (disks.qcow2(version=4), "versions 2 and 3"),
        (disks.qcow2()[:60], "versions 2 and 3"),
        (disks.qcow2()[:20], "cut off"),
        (b"KDMV" + bytes(508), "begins like vmdk"),
        (bytes(512), "begins like raw"),
    ],
)
def test_a_disk_that_depends_on_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, words: str
) -> None:
    asked = disks.answer(monkeypatch)
    with pytest.raises(UsageError, match="the file") as caught:
        check(tmp_path / "x", content)
    assert words in caught.value.why
    assert asked == []  # nothing opens what a hostile header names


@pytest.mark.parametrize("declared", ["raw", "iso"])
def test_a_disk_declared_as_raw_is_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: disk_format.Format
) -> None:
    """libvirt looks at the first bytes; an ISO's own begin at 32 KiB."""
    asked = disks.answer(monkeypatch)
    check(tmp_path / "x", b"\xebc\x90GRUB" + bytes(505), declared)
    check(tmp_path / "x", b"", declared)
    with pytest.raises(UsageError, match="refused") as caught:
        check(tmp_path / "x", disks.qcow2(backing="/etc/shadow") + bytes(1 << 16), declared)
    assert "qcow2" in caught.value.why
    assert asked == []


def test_qemu_is_asked_with_little_memory_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = disks.answer(monkeypatch)
    check(tmp_path / "x", disks.qcow2())
    limits = ("prlimit", f"--as={disk_format.MEMORY}", f"--cpu={disk_format.SECONDS}")
    assert asked == [(*limits, "qemu-img", "info", "--output=json", "-f", "qcow2", str(tmp_path / "x"))]


@pytest.mark.parametrize(
    "told",
    [
        {"format": "raw"},
        {"format": "qcow2", "backing-filename": "/etc/shadow"},
        {"format": "qcow2", "encrypted": True},
        {"format": "qcow2", "format-specific": {"data": {"data-file": "/etc/shadow"}}},
        {"format": "qcow2", "format-specific": {"data": {"encrypt": {"format": "luks"}}}},
        [],
    ],
)
def test_the_judgement_of_qemu_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: object) -> None:
    disks.answer(monkeypatch, json.dumps(told))
    with pytest.raises(UsageError, match="refused"):
        check(tmp_path / "x", disks.qcow2())


def test_disks_that_qemu_can_not_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Result:
        raise CommandError(Result(("qemu-img",), 1, "", "Image is corrupt", 0.0))

    monkeypatch.setattr(disk_format, "run", fail)
    with pytest.raises(UsageError) as caught:
        check(tmp_path / "x", disks.qcow2())
    assert "corrupt" in caught.value.why
