"""Reads files of a Windows that does not answer, from its disk, without using or changing the machine.

The disk is downloaded from the pool through libvirt; a clone's disk is rebased on a readable copy of its base (only
root and QEMU may read the pool). The NTFS partitions are found in the partition table (UEFI specification 5.3, "GPT";
MBR), and ntfscat of ntfs-3g reads the files. A running machine keeps writing, so the result may be slightly old.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from winlab import run
from winlab.errors import HostError
from winlab.supply.download import check_space

SECTOR = 512
GPT = b"EFI PART"
BASIC_DATA = bytes.fromhex("a2a0d0ebe5b9334487c068b6b72699c7")  # EBD0A0A2-B9E5-4433-87C0-68B6B72699C7
NTFS_TYPE = 7
NTFS = b"NTFS    "  # at byte 3 of the first sector
LARGEST = 16 << 20  # bytes of a log that are read: a guest may make a sparse file of any size
PATIENCE = 300.0  # seconds for ntfscat: a guest's file system may send it round in circles
PARTITIONS = 8  # that are read, the largest first: Windows and Setup make four
LONGEST = 1200.0  # seconds after which no further file is read, on whatever disk


def check_tools() -> None:
    """Check that ntfscat is installed, before gigabytes are downloaded for it.

    :raises HostError: it is not.
    """
    if run.find("ntfscat") is None:
        raise HostError("The program 'ntfscat' is not installed.", cure="Install the package ntfs-3g.")


def put_on(disk: Path, base: Path, kind: str) -> None:
    """Rebase the qcow2 file *disk* on the file *base*, whose content equals that of the base it was made on.

    :param kind: of *base*: ``qcow2`` or ``raw``.
    """
    run.run(["qemu-img", "rebase", "-u", "-f", "qcow2", "-F", kind, "-b", base.resolve(), disk])


def read(disk: Path, names: Sequence[str], work: Path) -> dict[str, bytes]:
    """Those of the files *names* (``Windows/Panther/setuperr.log``) that exist on the qcow2 file *disk*.

    :param work: a folder for temporary files: up to twice the disk's content.
    :raises HostError: it has no room for them.
    """
    over = time.monotonic() + LONGEST
    measured = run.run(["qemu-img", "measure", "--output", "json", "-O", "qcow2", "-f", "qcow2", disk])
    check_space(work, 2 * int(json.loads(measured.stdout)["required"]))
    whole = work / "disk.raw"
    run.run(["qemu-img", "convert", "-O", "raw", disk, whole])
    contents: dict[str, bytes] = {}
    # Windows' own is the largest; Setup adds others, for recovery
    by_size = sorted(_apart(partitions(whole)), key=lambda where: where[1], reverse=True)[:PARTITIONS]
    for number, (begin, size) in enumerate(by_size):
        if time.monotonic() > over:
            break
        part = work / f"part-{number}.raw"
        source = {"driver": "raw", "offset": begin, "size": size, "file": {"driver": "file", "filename": str(whole)}}
        run.run(["qemu-img", "convert", "-O", "raw", f"json:{json.dumps(source)}", part])
        for name in names:
            if time.monotonic() > over:
                break
            if name not in contents and (content := _cat(part, name)) is not None:
                contents[name] = content
        part.unlink()
    whole.unlink()
    return contents


def _cat(part: Path, name: str) -> bytes | None:
    return run.head(["ntfscat", "--force", "--quiet", part, name], LARGEST, PATIENCE)


def partitions(disk: Path) -> Iterator[tuple[int, int]]:
    """Where the NTFS partitions of a raw disk begin, and their sizes, in bytes."""
    with disk.open("rb") as file:
        head = file.read(2 * SECTOR)
        if len(head) < SECTOR:
            return
        rows = _gpt(file.read(32 * SECTOR)) if head[SECTOR : SECTOR + 8] == GPT else _mbr(head)
        end = disk.stat().st_size
        for begin, size in rows:
            if not 0 <= begin < begin + size <= end:  # a guest writes its disk's tables
                continue
            file.seek(begin)
            if file.read(11)[3:11] == NTFS:
                yield begin, size


def _apart(rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Those that begin after the end of the one before: a guest's table may name the same bytes many times."""
    end = 0
    for begin, size in sorted(rows):
        if begin >= end:
            yield begin, size
            end = begin + size


def _gpt(entries: bytes) -> list[tuple[int, int]]:
    ranges = []
    for at in range(0, len(entries) - 127, 128):
        kind, first, last = struct.unpack_from("<16s16xQQ", entries, at)
        if kind == BASIC_DATA:
            ranges.append((first * SECTOR, (last - first + 1) * SECTOR))
    return ranges


def _mbr(head: bytes) -> list[tuple[int, int]]:
    ranges = []
    for at in range(446, 510, 16):
        kind, first, count = struct.unpack_from("<4xB3xII", head, at)
        if kind == NTFS_TYPE:
            ranges.append((first * SECTOR, count * SECTOR))
    return ranges
