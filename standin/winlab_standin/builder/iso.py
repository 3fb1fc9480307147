"""The ISO itself: a UDF bridge with the layout of Microsoft's oscdimg.

Facts, from real media: the ISO9660 tree has only README.TXT; the El Torito catalog is in sector 22. Its first
entry is for a BIOS (8 sectors of 512 bytes), the second for UEFI with a sector count of 1. Both images are outside the
ISO9660 tree.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import pycdlib

from winlab.errors import WinlabError
from winlab_standin.builder.boot import etfsboot

SECTOR = 2048
CATALOG = 22  # sector
VOLUME = "SSS_X64FREE_EN-US_DV9"
README = (
    b'This disc contains a "UDF" file system and requires an operating system\r\n'
    b'that supports the ISO-13346 "UDF" file system specification.\r\n'
)
BIOS_IMAGE = "/boot/etfsboot.com"
UEFI_IMAGE = "/efi/microsoft/boot/efisys.bin"


def validation_entry(identity: bytes = b"Microsoft Corporation") -> bytes:
    """The catalog's first 32 bytes: for a BIOS (platform 0); all 16-bit words add up to 0 (El Torito 1.0, 2.1)."""
    entry = bytearray(struct.pack("<BBH24sHBB", 1, 0, 0, identity, 0, 0x55, 0xAA))
    total = sum(struct.unpack("<16H", entry))
    struct.pack_into("<H", entry, 28, -total & 0xFFFF)
    return bytes(entry)


def catalog(bios: int, uefi: int) -> bytes:
    """The boot catalog, one sector. *bios* and *uefi*: the 2048-byte blocks where the two images begin."""
    default = struct.pack("<BBHBBHI", 0x88, 0, 0, 0, 0, 8, bios)
    header = struct.pack("<BBH28s", 0x91, 0xEF, 1, b"")
    section = struct.pack("<BBHBBHI", 0x88, 0, 0, 0, 0, 1, uefi)
    parts = [validation_entry(), default.ljust(32, b"\0"), header, section.ljust(32, b"\0")]
    return b"".join(parts).ljust(SECTOR, b"\0")


def write(output: Path, files: dict[str, Path | bytes]) -> None:
    """Write the ISO with *files* (path on the media to content). The two boot images and /bootmgr must be among them.

    :raises WinlabError: pycdlib laid it out in a way that leaves no room for the catalog.
    """
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, udf="2.60", vol_ident=VOLUME)
    opened = []
    try:
        iso.add_fp(io.BytesIO(README), len(README), iso_path="/README.TXT;1", udf_path="/README.TXT")
        folders: set[str] = set()
        for path, content in files.items():
            _folders(iso, path, folders)
            hidden = {BIOS_IMAGE: "/BIOS.IMG;1", UEFI_IMAGE: "/UEFI.IMG;1"}.get(path)
            if isinstance(content, Path):
                file = content.open("rb")
                opened.append(file)
                iso.add_fp(file, content.stat().st_size, udf_path=path, iso_path=hidden)
            else:
                iso.add_fp(io.BytesIO(content), len(content), udf_path=path, iso_path=hidden)
        iso.add_eltorito("/BIOS.IMG;1", bootcatfile="/BOOT.CAT;1", boot_load_size=8)
        iso.add_eltorito("/UEFI.IMG;1", efi=True, platform_id=0xEF, boot_load_size=1)
        for name in ("/BIOS.IMG;1", "/UEFI.IMG;1", "/BOOT.CAT;1"):
            iso.rm_hard_link(iso_path=name)
        iso.write(str(output))
        places = {path: _extent(iso, path) for path in (BIOS_IMAGE, UEFI_IMAGE, "/bootmgr")}
    finally:
        iso.close()
        for file in opened:
            file.close()
    bootmgr = files["/bootmgr"]
    assert isinstance(bootmgr, bytes)
    finish(output, places, bootmgr)


def _folders(iso: Any, path: str, made: set[str]) -> None:
    parts = path.strip("/").split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        folder = "/" + "/".join(parts[:depth])
        if folder not in made:
            iso.add_directory(udf_path=folder)
            made.add(folder)


def _extent(iso: Any, path: str) -> int:
    return int(iso.get_record(udf_path=path).inode.extent_location())


def finish(output: Path, places: dict[str, int], bootmgr: bytes) -> None:
    """Put the catalog where Microsoft's is, and the place of the BIOS image's rest into it. Changes our own file."""
    with output.open("r+b") as iso:
        iso.seek(17 * SECTOR)
        record = iso.read(SECTOR)
        iso.seek(CATALOG * SECTOR)
        if record[7:30] != b"EL TORITO SPECIFICATION" or any(iso.read(SECTOR)):
            raise WinlabError(
                "The boot catalog can't be put into sector 22.", why="pycdlib laid the ISO out otherwise."
            )
        iso.seek(CATALOG * SECTOR)
        iso.write(catalog(places[BIOS_IMAGE], places[UEFI_IMAGE]))
        iso.seek(17 * SECTOR + 0x47)
        iso.write(struct.pack("<I", CATALOG))
        iso.seek(places[BIOS_IMAGE] * SECTOR)
        iso.write(etfsboot(bootmgr, places["/bootmgr"]))
