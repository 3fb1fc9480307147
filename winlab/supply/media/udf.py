"""Finding files of a medium in any case, as Windows does; and renaming one by a few bytes, which an overlay can hold.

Source: ECMA-167, 4/14.4 (file identifier descriptor) and 4/7.2 (descriptor tag, with its checksum and CRC-16).
"""

from __future__ import annotations

import binascii
import struct
from pathlib import Path, PurePosixPath
from typing import Any

import pycdlib
from pycdlib.pycdlibexception import PyCdlibException

SECTOR = 2048
IDENTIFIER = 257  # the tag of a file identifier descriptor
LARGEST = 16 << 20  # bytes of a folder; Microsoft's have some thousand
HEAD = 38  # bytes before the implementation's own and the name


def find(iso: pycdlib.PyCdlib, path: str, kind: str = "udf_path") -> str | None:
    """The path of a file or folder as the medium spells it; None if there is none.

    :param path: in any case, such as ``/efi/microsoft/boot``; the medium's own spelling comes first.
    :param kind: pycdlib's name for the tree: ``udf_path`` or ``joliet_path``.
    """
    found = ""
    for part in PurePosixPath(path).parts[1:]:
        try:
            names = [name_of(child, kind) for child in iso.list_children(**{kind: found or "/"}) if child is not None]
        except PyCdlibException:
            return None
        names = [name for name in names if name.lower() == part.lower()]
        if not names:
            return None
        found = f"{found}/{part if part in names else names[0]}"
    return found or "/"


def name_of(child: Any, kind: str = "udf_path") -> str:
    """What a child that pycdlib lists is called."""
    how = "utf-8" if kind == "udf_path" else "utf-16-be"
    return str(child.file_identifier().decode(how, "replace").partition(";")[0])


def rename(medium: Path, iso: pycdlib.PyCdlib, path: str, name: str) -> tuple[int, bytes] | None:
    """What to write where in *medium* (opened as *iso*), so that the file *path* is called *name*: (offset, bytes).

    None if there is no such file. *name* must be as long as the one before.
    """
    real = find(iso, path)
    if real is None:
        return None
    old = PurePosixPath(real).name
    record = iso.get_record(udf_path=str(PurePosixPath(real).parent))
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
        if entry_name == old:
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
