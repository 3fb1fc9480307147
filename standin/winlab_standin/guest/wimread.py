"""The list of images in a WIM, read from its header (wimlib, header.h)."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree

from winlab_standin.guest.base import StandinError
from winlab_standin.guest.plan import Image
from winlab_standin.guest.releases import Windows, of_build


def images(path: Path) -> tuple[Image, ...]:
    """The images of a WIM.

    :raises StandinError: the file is not a WIM, or has a Windows that the stand-in does not know.
    """
    with path.open("rb") as file:
        header = file.read(208)
        if header[:8] != b"MSWIM\0\0\0":
            raise StandinError(f"'{path}' is not a WIM.")
        size = int.from_bytes(header[0x48:0x4F], "little")
        (offset,) = struct.unpack_from("<Q", header, 0x50)
        file.seek(offset)
        root = ElementTree.fromstring(file.read(size).decode("utf-16"))  # noqa: S314  # from our own media
    found = []
    for node in root.findall("IMAGE"):
        name, description = node.findtext("NAME") or "", node.findtext("DESCRIPTION") or ""
        found.append(Image(int(node.get("INDEX", "0")), name, description, _windows(node)))
    return tuple(found)


def _windows(node: ElementTree.Element) -> Windows:
    """What an image contains, by the WIM's own list."""
    return Windows(
        of_build(int(node.findtext("WINDOWS/VERSION/BUILD") or 0)),
        node.findtext("WINDOWS/EDITIONID") or "",
        node.findtext("WINDOWS/INSTALLATIONTYPE") or "",
        node.findtext("WINDOWS/LANGUAGES/DEFAULT") or "",
        tuple(one.text or "" for one in node.findall("WINDOWS/LANGUAGES/LANGUAGE")),
    )
