"""One self-contained, unattended installation ISO, for use without winlab.

It is built from scratch from the medium's files. Changing a medium in place is not safe: pycdlib and others damage
Microsoft's images when they rewrite them (boot image cut to 512 bytes, install.wim silently altered). Everything is in
UDF, files over 4 GiB too; the boot catalog has the BIOS image and the UEFI image that asks for no key.
boot/bootfix.bin, which asks under BIOS, is left out.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import pycdlib

from winlab.errors import UsageError
from winlab.events import Progress
from winlab.supply.media import inspection, windows_iso
from winlab.supply.media.inspection import MediumFile
from winlab.supply.media.windows_iso import BOOT_FIX, NO_PROMPT, SECTOR

BIOS_IMAGE = "/boot/etfsboot.com"
BIOS_SECTORS = 8  # of 512 bytes; all of etfsboot.com
CATALOG = "/BOOT.CAT;1"
LEFT_OUT = (BOOT_FIX, "/boot.cat")  # a new boot catalog is made; Microsoft's has no name
LABEL_LENGTH = 32
TABLE = 8  # where a boot information table begins in a boot image: three numbers of 32 bits
VOLUME_DESCRIPTOR = 16  # its first number, the sector of the primary volume descriptor


class _Window(io.RawIOBase):
    """A file of the medium, read in place."""

    def __init__(self, source: io.BufferedReader, file: MediumFile) -> None:
        self._handle = source.fileno()
        self._begin = file.begin or 0
        self._size = file.size
        self._position = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        wanted = min(len(buffer), max(0, self._size - self._position))
        count = os.preadv(self._handle, [memoryview(buffer)[:wanted]], self._begin + self._position)
        self._position += count
        return count


def build(medium: Path, output: Path, extra: Mapping[str, bytes | Path], progress: Progress) -> None:
    """Write the ISO.

    :param extra: files to add to the medium's own, by their paths in the ISO.
    :raises UsageError: the medium can't be installed from, or a file of *extra* is on it already.
    """
    report = inspection.inspect(medium)
    report.require_usable()
    names = {file.path.lower(): file for file in report.files}
    for needed in (BIOS_IMAGE, NO_PROMPT):
        if needed not in names:
            raise UsageError(
                f"'{medium}' has no {needed.lstrip('/')}, from which the ISO has to boot.",
                cure="Use the ISO as Microsoft distributes it.",
            )
    if taken := sorted(name for name in extra if f"/{name}".lower() in names):
        raise UsageError(
            f"'{medium}' already has a file '{taken[0]}'.", cure="Use the ISO as Microsoft distributes it."
        )
    kept = [file for file in report.files if file.path.lower() not in LEFT_OUT]
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, udf="2.60", vol_ident=report.label[:LABEL_LENGTH])
    opened = []
    try:
        with medium.open("rb") as source:
            folders: set[str] = set()
            for file in kept:
                _folders(iso, file.path, folders)
                hidden = {BIOS_IMAGE: "/BIOS.IMG;1", NO_PROMPT: "/UEFI.IMG;1"}.get(file.path.lower())
                iso.add_fp(cast(BinaryIO, _Window(source, file)), file.size, udf_path=file.path, iso_path=hidden)
            for name, content in sorted(extra.items()):
                _folders(iso, f"/{name}", folders)
                if isinstance(content, Path):
                    opened.append(content.open("rb"))
                    iso.add_fp(opened[-1], content.stat().st_size, udf_path=f"/{name}")
                else:
                    iso.add_fp(io.BytesIO(content), len(content), udf_path=f"/{name}")
            iso.add_eltorito("/BIOS.IMG;1", bootcatfile=CATALOG, boot_load_size=BIOS_SECTORS)
            iso.add_eltorito("/UEFI.IMG;1", efi=True, platform_id=windows_iso.UEFI)
            for name in ("/BIOS.IMG;1", "/UEFI.IMG;1", CATALOG):
                iso.rm_hard_link(iso_path=name)
            _write(iso, output, progress)
            moved = _table(source, iso, names[BIOS_IMAGE], kept)
            place = _sector(iso, names[BIOS_IMAGE].path)
    finally:
        iso.close()
        for stream in opened:
            stream.close()
    if moved is not None:
        with output.open("r+b") as target:
            target.seek(place * SECTOR + TABLE)
            target.write(moved)


def _write(iso: pycdlib.PyCdlib, output: Path, progress: Progress) -> None:
    said = -1

    def tell(done: int, total: int, _: object) -> None:
        nonlocal said
        if total and (percent := done * 100 // total) != said:
            said = percent
            progress.say(f"{done >> 20} of {total >> 20} MiB", done / total)

    output.touch(mode=0o600)  # it holds secrets
    output.chmod(0o600)
    with output.open("wb") as file:
        iso.write_fp(file, blocksize=1 << 20, progress_cb=tell)


def _folders(iso: pycdlib.PyCdlib, path: str, folders: set[str]) -> None:
    for folder in reversed([str(parent) for parent in PurePosixPath(path).parents if str(parent) != "/"]):
        if folder not in folders:
            iso.add_directory(udf_path=folder)
            folders.add(folder)


def _sector(iso: pycdlib.PyCdlib, path: str) -> int:
    record = iso.get_record(udf_path=path)
    assert record.inode is not None  # a file always has one
    return int(record.inode.extent_location())


def _table(source: io.BufferedReader, iso: pycdlib.PyCdlib, image: MediumFile, files: list[MediumFile]) -> bytes | None:
    """The boot information table that the BIOS image needs on the new ISO; None if it has none, like Microsoft's.

    Other vendors' boot loaders use it to find the rest of their code: sector of the volume descriptor, sector and
    length of a file (mkisofs(8), "EL TORITO BOOT INFORMATION TABLE").
    """
    source.seek((image.begin or 0) + TABLE)
    descriptor, sector, length = struct.unpack("<III", source.read(12))
    file = next((entry for entry in files if entry.begin == sector * SECTOR and entry.size == length), None)
    if descriptor != VOLUME_DESCRIPTOR or file is None:
        return None
    return struct.pack("<III", descriptor, _sector(iso, file.path), length)
