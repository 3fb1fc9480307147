"""Renaming a file of a UDF medium by a few bytes, which an overlay can hold.

Source: ECMA-167, 4/14.4 (file identifier descriptor) and 4/7.2 (descriptor tag, with its checksum and CRC-16).
"""

from __future__ import annotations

import binascii
import struct
from pathlib import Path, PurePosixPath

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

SECTOR = 2048
IDENTIFIER = 257  # the tag of a file identifier descriptor
LARGEST = 16 << 20  # bytes of a folder; Microsoft's have some thousand
HEAD = 38  # bytes before the implementation's own and the name


def rename(medium: Path, iso: pycdlib.PyCdlib, path: str, name: str) -> tuple[int, bytes] | None:
    """What to write where in *medium* (opened as *iso*), so that the file *path* is called *name*: (offset, bytes).

    None if there is no such file. *name* must be as long as the one before.
    """
    old, folder = PurePosixPath(path).name, str(PurePosixPath(path).parent)
    try:
        record = iso.get_record(udf_path=folder)
        iso.get_record(udf_path=path)
    except PyCdlibException:
        return None
    # pycdlib keeps a folder's names sorted; on the medium they follow each other from the first extent on
    assert isinstance(record, pycdlib.udf.UDFFileEntry)  # what a path in the UDF tree leads to
    first = min(entry.extent_location() for entry in record.fi_descs.values())
    with medium.open("rb") as file:
        file.seek(first * SECTOR)
        data = file.read(min(record.get_data_length(), LARGEST))
    position = 0
    while position + HEAD <= len(data) and struct.unpack_from("<H", data, position)[0] == IDENTIFIER:
        name_length, own = data[position + 19], struct.unpack_from("<H", data, position + 36)[0]
        length = (HEAD + own + name_length + 3) & ~3
        begin = position + HEAD + own
        wide = data[begin : begin + 1] == b"\x10"
        entry_name = data[begin + 1 : begin + name_length].decode("utf-16-be" if wide else "latin-1")
        if entry_name.lower() == old.lower():
            fresh = bytearray(data[position : position + length])
            fresh[begin - position + 1 : begin - position + name_length] = name.encode(
                "utf-16-be" if wide else "latin-1"
            )
            return first * SECTOR + position, _sealed(fresh)
        position += length
    return None


def _sealed(descriptor: bytearray) -> bytes:
    """The descriptor with the CRC and the checksum that it must have."""
    (covered,) = struct.unpack_from("<H", descriptor, 10)
    struct.pack_into("<H", descriptor, 8, binascii.crc_hqx(bytes(descriptor[16 : 16 + covered]), 0))
    descriptor[4] = (sum(descriptor[:4]) + sum(descriptor[5:16])) & 0xFF
    return bytes(descriptor)
