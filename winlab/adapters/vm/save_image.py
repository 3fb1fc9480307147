"""libvirt's image of a saved machine: a header, the machine's XML, libvirt's cookie, and QEMU's migration stream.

Checked with images of libvirt 9.0 and 11.3, and in the source of libvirt 11: `virQEMUSaveHeader` in
src/qemu/qemu_saveimage.h, `virQEMUSaveDataWrite` and `qemuSaveImageReadHeader` in qemu_saveimage.c. The header's
numbers have the byte order of the host. XML and cookie end with a NUL. Zeros follow, 64 KiB in libvirt's own images, so
that an edited XML has room. Images of other formats than "raw" are refused: compressed ones, and "sparse" ones, where
QEMU puts the pages at their offsets. libvirt 11.3 calls a snapshot's image "sparse" if qemu.conf says so, but writes
the stream of "raw" (qemuSnapshotCreateActiveExternal sets no capability). Then it can't restore it itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from winlab.adapters.vm.chunks import Chunks
from winlab.errors import WinlabError

MAGIC, PARTIAL = b"LibvirtQemudSave", b"LibvirtQemudPart"
VERSION, SWAPPED = 2, 2 << 24
RAW = 0  # of the formats, in older versions of libvirt called compressions
# magic, version, length of XML and cookie with the zeros, whether it was running, format, the cookie's begin, unused
HEADER = struct.Struct("<16s5I56x")
MOST = 1 << 20  # bytes of XML or cookie


@dataclass(frozen=True)
class SaveImage:
    """The image of a saved machine."""

    xml: str
    cookie: str  # what libvirt needs beside the XML, its own XML; empty if there is none
    running: bool  # when it was saved; a machine that was paused stays paused when it is restored
    stream: Iterator[bytes]  # QEMU's


def read_header(chunks: Iterable[bytes]) -> SaveImage:
    """Read an image up to QEMU's stream.

    :raises WinlabError: it is damaged or incomplete, or has a format that winlab does not know.
    """
    content = Chunks(chunks)
    magic, version, length, running, form, begin = HEADER.unpack(content.take(HEADER.size))
    if magic != MAGIC:
        raise _unreadable("libvirt did not finish it." if magic == PARTIAL else f"It begins with {magic!r}.")
    if version != VERSION:
        why = "The host that saved it has the other byte order." if version == SWAPPED else f"It has version {version}."
        raise _unreadable(why)
    if form != RAW:
        raise _unreadable(
            f"It is compressed or sparse: it has libvirt's format {form}.",
            "Remove 'snapshot_image_format' from /etc/libvirt/qemu.conf on the hypervisor, and restart libvirtd.",
        )
    for_xml = begin or length
    if not 0 < for_xml <= min(length, MOST) or length - for_xml > MOST:
        raise _unreadable(f"Its XML and cookie have {length} bytes, and the cookie begins at {begin}.")
    xml = _text(content.take(for_xml))
    cookie = _text(content.take(length - for_xml)) if begin else ""
    return SaveImage(xml, cookie, running != 0, content.rest())


def header(xml: str, cookie: str, running: bool = True) -> bytes:
    """An image up to QEMU's stream: what follows is the stream itself."""
    first = xml.encode() + b"\0"
    second = cookie.encode() + b"\0" if cookie else b""
    begin = len(first) if cookie else 0
    return HEADER.pack(MAGIC, VERSION, len(first + second), running, RAW, begin) + first + second


def _text(content: bytes) -> str:
    """The text before the zeros."""
    text, end, _ = content.partition(b"\0")
    if not end:
        raise _unreadable("Its XML or cookie has no end.")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _unreadable(f"Its XML or cookie is not UTF-8: {error}.") from error


def _unreadable(
    why: str, cure: str = "Save the machine again. If you imported the snapshot, import it again."
) -> WinlabError:
    return WinlabError("The image of a saved machine can't be read.", why=why, cure=cure)
