"""Which of virtio's drivers a medium has itself, as rebuilt media may: in the Windows PE of its Setup, in its images.

Setup of Windows Server 2025 was seen to end at a driver that its Windows PE has already (0x80070103). wimlib-imagex
lists the files of an image by the WIM's metadata alone. So it is given a file with holes that has nothing else.

Source: the WIM header and blob table as wimlib documents them (header.h, blob_table.h, resource.h).
"""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from shutil import which
from typing import BinaryIO

from pycdlib.pycdlibexception import PyCdlibException

from winlab.errors import HostError
from winlab.run import CommandError, watched
from winlab.supply.media import inspection, udf, windows_iso
from winlab.supply.media.wim import HEADER, MAGIC, XML_RESOURCE

PROGRAM = "wimlib-imagex"
FOLDER = "/Windows/System32/drivers"
FILES = {"vioscsi.sys": "vioscsi", "viostor.sys": "viostor", "netkvm.sys": "NetKVM"}  # by virtio-win's names
BLOB_TABLE = 0x30
ENTRY = 50  # bytes of the blob table: a resource header, the part's number, a count, a SHA-1
COMPRESSED, METADATA = 0x04, 0x02
LARGEST = 256 << 20  # bytes that are taken of a WIM; Microsoft's metadata have some tens of MiB
SECONDS = 60.0


def of(medium: Path, image: str | None = None) -> frozenset[str]:
    """The drivers that the medium's Windows PE has, and the image to install, too, if its name or number is given.

    Empty as well where it can't be found out: without wimlib-imagex, or because the medium is odd.

    :raises UsageError: the medium can't be read.
    """
    report = inspection.inspect(medium)
    wanted = [("/sources/boot.wim", report.setup[-1].index)] if report.setup else []
    if image is not None and (chosen := report.image(image)) is not None:
        wanted.append(("/sources/install.wim", chosen.index))
    if len(wanted) < (1 if image is None else 2) or which(PROGRAM) is None:
        return frozenset()
    found = []
    with windows_iso.opened(medium) as iso, tempfile.TemporaryDirectory(prefix="winlab-") as folder:
        for what, index in wanted:
            try:
                with iso.open_file_from_iso(udf_path=udf.find(iso, what) or what) as file:
                    found.append(_of_image(file, index, Path(folder) / "skeleton.wim"))
            except (PyCdlibException, OSError, ValueError, struct.error):
                return frozenset()
    return frozenset.intersection(*found)


def _of_image(wim: BinaryIO, index: int, skeleton: Path) -> frozenset[str]:
    """The drivers in an image of the WIM that *wim* is positioned in."""
    copy_metadata(wim, skeleton)
    try:
        listed = watched([PROGRAM, "dir", skeleton, str(index), f"--path={FOLDER}"], timeout=SECONDS)
    except (HostError, CommandError):
        return frozenset()  # it has no such folder, or wimlib refuses it
    names = {line.strip().rpartition("/")[2].lower() for line in listed.stdout.splitlines()}
    return frozenset(driver for name, driver in FILES.items() if name in names)


def copy_metadata(wim: BinaryIO, target: Path) -> None:
    """Write what a WIM says of its images' files to *target*, each part at its place, without the files themselves.

    :raises ValueError: it is not a WIM whose blob table can be read.
    """
    header = wim.read(HEADER)
    if len(header) < HEADER or header[:8] != MAGIC:
        raise ValueError("it is not a WIM")
    table, xml = _resource(header, BLOB_TABLE), _resource(header, XML_RESOURCE)
    if table[2] & COMPRESSED or table[1] > LARGEST:
        raise ValueError("its blob table is compressed or too long")
    entries = _read(wim, table[0], table[1])
    rows = [_resource(entries, place) for place in range(0, len(entries) - ENTRY + 1, ENTRY)]
    metadata = [row[:2] for row in rows if row[2] & METADATA]
    parts = [table[:2], xml[:2], *metadata]
    if not metadata or sum(size for _, size in parts) > LARGEST:
        raise ValueError("it has no metadata of images, or too much")
    with target.open("wb") as out:
        out.write(header)
        for offset, size in parts:
            out.seek(offset)
            out.write(_read(wim, offset, size))


def _resource(data: bytes, place: int) -> tuple[int, int, int]:
    """A resource header: offset, size in the file, flags."""
    (packed, offset) = struct.unpack_from("<QQ", data, place)
    return offset, packed & ((1 << 56) - 1), packed >> 56


def _read(wim: BinaryIO, offset: int, size: int) -> bytes:
    wim.seek(offset)
    content = wim.read(size)
    if len(content) != size:
        raise ValueError("it is truncated")
    return content
