"""Reading a Windows Server ISO without mounting or changing it.

Sources: El Torito 1.0 for the boot catalog; Microsoft's own layout (everything in UDF, boot images outside the ISO 9660
tree, the UEFI entry with sector count 1).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

from winlab import bounded, files
from winlab.errors import UsageError
from winlab.supply.media import udf

SECTOR = 2048
BOOT_RECORD = 17  # the sector that El Torito fixes for its boot record
PRIMARY, ANCHOR = 16, 256  # the sectors of ISO 9660's and UDF's first descriptors
ANCHOR_TAG, PARTITION_TAG = 2, 5
LONGEST = 64  # sectors of a volume descriptor sequence that are read
UEFI = 0xEF
NO_PROMPT = "/efi/microsoft/boot/efisys_noprompt.bin"
# What pycdlib raises where a damaged medium's numbers lead nowhere, besides its own errors
ODD = (
    *(PyCdlibException, struct.error, ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError),
    *(TypeError, ValueError),
)
LIMITS = bounded.Limits(memory=512 << 20, seconds=20, patience=300, answer=1 << 10)
BOOT_FIX = "/boot/bootfix.bin"  # said to ask only if there is something else to boot


@dataclass(frozen=True)
class BootEntry:
    """An entry of the boot catalog: where the entry is in the file, its platform, and what it loads."""

    offset: int
    platform: int
    load_sector: int
    sector_count: int


@contextmanager
def opened(path: Path) -> Iterator[pycdlib.PyCdlib]:
    """An ISO image, to read in.

    :raises UsageError: it is not one, or can't be read; the message says what it is instead.
    """
    if files.is_no_file(path):
        raise UsageError(f"The medium '{path}' can't be read.", why="It is not a file.")
    try:
        with path.open("rb") as file:
            start = file.read(512).lstrip()[:64].lower()
    except OSError as error:
        raise UsageError(f"The medium '{path}' can't be read.", why=str(error)) from error
    if start.startswith((b"<!doctype", b"<html", b"<?xml")):
        raise UsageError(
            f"'{path}' is a web page, not an ISO image.",
            why="A download page was saved instead of the medium.",
            cure="Download the ISO again and compare its SHA-256.",
        )
    _try(path)
    iso = pycdlib.PyCdlib()
    try:
        iso.open(str(path))
    except Exception as error:  # pycdlib raises struct.error and others on damaged media
        if (stated := stated_size(path)) > (size := path.stat().st_size):
            raise UsageError(
                f"'{path}' is truncated: it has {size} of {stated} bytes.",
                cure="Download it again, or resume the download.",
            ) from error
        raise UsageError(
            f"'{path}' is not a readable ISO image.", why=str(error), cure="Download it again and compare its SHA-256."
        ) from error
    try:
        yield iso
    except ODD as error:
        raise UsageError(
            f"'{path}' is damaged: its file system can't be read.",
            why=f"{type(error).__name__}: {error}",
            cure="Download it again and compare its SHA-256.",
        ) from error
    finally:
        iso.close()


def _try(path: Path) -> None:
    """Have a child process read the medium's folders first, in which numbers of a stranger may ask for all memory.

    :raises UsageError: it takes too much.
    """
    facts = path.stat()
    _tried(str(path.absolute()), facts.st_ino, facts.st_size, facts.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _tried(path: str, *_identity: int) -> None:
    try:
        bounded.call(read_folders, {"path": path}, LIMITS)
    except bounded.BoundedError as error:
        raise UsageError(
            f"'{path}' is not a readable ISO image.",
            why=f"Reading its folders takes too much. {error.why}",
            cure="Download it again and compare its SHA-256.",
        ) from error


def read_folders(path: str) -> None:
    """Read what pycdlib reads to open a medium; what is wrong with the medium is for the caller to find out."""
    try:
        pycdlib.PyCdlib().open(path)
    except MemoryError:
        raise
    except Exception:  # noqa: S110 - whatever pycdlib raises on a damaged medium, the caller will meet it, too
        pass


def stated_size(path: Path) -> int:
    """The minimum size of the medium in bytes according to its own descriptors; 0 if there are none.

    (ECMA-119 8.4.8, the primary volume descriptor; ECMA-167 3/10.2 and 3/10.5, anchor and partition descriptor)
    """
    with path.open("rb") as file:

        def sector(number: int) -> bytes:
            file.seek(number * SECTOR)
            return file.read(SECTOR).ljust(SECTOR, b"\0")

        primary, anchor = sector(PRIMARY), sector(ANCHOR)
        size = struct.unpack_from("<I", primary, 80)[0] * SECTOR if primary.startswith(b"\x01CD001") else 0
        if struct.unpack_from("<H", anchor)[0] != ANCHOR_TAG:
            return size
        length, first = struct.unpack_from("<II", anchor, 16)
        for number in range(first, first + min(length // SECTOR, LONGEST)):
            descriptor = sector(number)
            if struct.unpack_from("<H", descriptor)[0] == PARTITION_TAG:
                start, blocks = struct.unpack_from("<II", descriptor, 188)
                size = max(size, (start + blocks) * SECTOR)
        return size


def boot_entries(path: Path) -> list[BootEntry]:
    """The bootable entries of the El Torito catalog; empty if there is none."""
    with path.open("rb") as file:
        file.seek(BOOT_RECORD * SECTOR)
        record = file.read(SECTOR).ljust(SECTOR, b"\0")
        if record[:7] != b"\0CD001\1" or not record[7:].startswith(b"EL TORITO SPECIFICATION"):
            return []
        (sector,) = struct.unpack_from("<I", record, 0x47)
        file.seek(sector * SECTOR)
        catalog = file.read(SECTOR).ljust(SECTOR, b"\0")  # a cut medium ends before it
    entries: list[BootEntry] = []
    platform = catalog[1]
    for position in range(32, SECTOR, 32):
        entry = catalog[position : position + 32]
        if entry[0] in (0x90, 0x91):
            platform = entry[1]
        elif entry[0] == 0x88:
            (count, load) = struct.unpack_from("<HI", entry, 6)
            entries.append(BootEntry(sector * SECTOR + position, platform, load, count))
        elif position > 32 and entry[0] != 0x44:
            break
    return entries


def no_prompt_patches(path: Path) -> list[tuple[int, bytes]]:
    """What to write where, so that the medium boots without asking for a key: (offset, bytes), ...

    The UEFI entry is pointed at the image that Microsoft ships for this, and boot/bootfix.bin, which asks under BIOS,
    is renamed so that it is not found. Empty if neither is there; see :func:`must_have_a_key`.

    :raises UsageError: the medium can't be read.
    """
    patches = []
    with opened(path) as iso:
        entry, sector = _uefi(path), _no_prompt_sector(iso)
        if entry is not None and sector is not None and entry.load_sector != sector:
            patches.append((entry.offset + 8, struct.pack("<I", sector)))
        if iso.has_udf() and (patch := udf.rename(path, iso, BOOT_FIX, "bootfix.off")) is not None:
            patches.append(patch)
    return patches


def asks_for_a_key(path: Path) -> bool:
    """Whether UEFI asks for a key before it boots the medium, as it is.

    :raises UsageError: the medium can't be read.
    """
    with opened(path) as iso:
        entry = _uefi(path)
        return entry is not None and entry.load_sector != _no_prompt_sector(iso)


def must_have_a_key(path: Path) -> bool:
    """Whether UEFI asks for a key even with the overlay: the medium has no boot image that doesn't.

    :raises UsageError: the medium can't be read.
    """
    with opened(path) as iso:
        return _uefi(path) is not None and _no_prompt_sector(iso) is None


def _uefi(path: Path) -> BootEntry | None:
    return next((entry for entry in boot_entries(path) if entry.platform == UEFI), None)


def _no_prompt_sector(iso: pycdlib.PyCdlib) -> int | None:
    if not iso.has_udf() or (path := udf.find(iso, NO_PROMPT)) is None:
        return None
    record = iso.get_record(udf_path=path)
    assert record.inode is not None  # a file always has one
    return int(record.inode.extent_location())
