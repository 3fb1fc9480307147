"""Reading the list of images in a WIM file, in place.

Source: the WIM header as wimlib documents it (208 bytes, little-endian; the XML's resource header is at 0x48), and the
XML's elements as they are in Microsoft's media.
"""

from __future__ import annotations

import itertools
import re
import struct
from dataclasses import dataclass
from typing import BinaryIO

from lxml import etree

from winlab.errors import UsageError

MAGIC = b"MSWIM\0\0\0"
HEADER = 208
XML_RESOURCE = 0x48
ARCHITECTURES = {"0": "x86", "5": "arm", "9": "x64", "12": "arm64"}  # PROCESSOR_ARCHITECTURE_*, winnt.h
MAX_XML = 4 << 20  # bytes; Microsoft's lists of tens of images have some hundred KiB
MOST_IMAGES = 1000


@dataclass(frozen=True)
class WimImage:
    """One image of a WIM; ``build`` is None if the XML has none."""

    index: int
    name: str
    display_name: str
    edition: str
    installation_type: str
    language: str
    build: int | None
    revision: int | None = None  # the update revision of the build: 587 in 20348.587
    architecture: str = ""
    languages: tuple[str, ...] = ()  # all that it can be installed in, where its list has several

    @property
    def is_server(self) -> bool:
        """Whether it is Windows Server; clients have the installation type "Client"."""
        return self.installation_type.startswith("Server")

    @property
    def is_evaluation(self) -> bool:
        """Whether it is an edition for evaluation, which takes no product key."""
        return self.edition.endswith("Eval")


def read_images(file: BinaryIO, what: str) -> list[WimImage]:
    """The images of the WIM that *file* is positioned in (seekable, at offset 0).

    :param what: what messages call the file.
    :raises UsageError: it is not a whole, unspanned WIM.
    """
    header = file.read(HEADER)
    if len(header) < HEADER or header[:8] != MAGIC:
        raise UsageError(f"{what} is not a WIM file.", cure="Use the ISO as Microsoft distributes it.")
    part, parts = struct.unpack_from("<HH", header, 0x28)
    if parts != 1:
        raise UsageError(
            f"{what} is part {part} of a split WIM.",
            cure="Join the parts first, or use the ISO as Microsoft distributes it.",
        )
    (packed, offset, original) = struct.unpack_from("<QQQ", header, XML_RESOURCE)
    size, flags = packed & ((1 << 56) - 1), packed >> 56
    if flags & 0x1C or size != original:
        raise UsageError(f"The image list in {what} can't be read.", why="It is compressed or spans several files.")
    if size > MAX_XML:
        raise _too_long(what, f"It has {size:,} bytes, and {MAX_XML:,} are the most.")
    try:
        file.seek(offset)
        raw = file.read(size)
    except (OSError, ValueError, OverflowError):  # far beyond the end
        raw = b""
    if len(raw) != size:
        raise UsageError(
            f"{what} is truncated.", why="Its image list is beyond the end of the file.", cure="Download the ISO again."
        )
    try:
        root = etree.fromstring(raw.decode("utf-16").encode(), etree.XMLParser(resolve_entities=False))
    except (UnicodeDecodeError, etree.XMLSyntaxError) as error:
        raise UsageError(
            f"The image list in {what} is damaged.", why=str(error), cure="Download the ISO again."
        ) from error
    elements = list(itertools.islice(root.iterchildren("IMAGE"), MOST_IMAGES + 1))
    if len(elements) > MOST_IMAGES:
        raise _too_long(what, f"It has more than {MOST_IMAGES:,} images.")
    return [_image(element) for element in elements]


def _too_long(what: str, why: str) -> UsageError:
    return UsageError(
        f"The image list in {what} can't be read.", why=why, cure="Use the ISO as Microsoft distributes it."
    )


def _image(element: etree._Element) -> WimImage:
    def text(path: str) -> str:
        return element.findtext(path) or ""

    build, revision = text("WINDOWS/VERSION/BUILD"), text("WINDOWS/VERSION/SPBUILD")
    architecture = text("WINDOWS/ARCH")
    return WimImage(
        index=_number(element.get("INDEX", "0")) or 0,
        name=text("NAME"),
        display_name=text("DISPLAYNAME"),
        edition=text("WINDOWS/EDITIONID"),
        installation_type=text("WINDOWS/INSTALLATIONTYPE"),
        language=text("WINDOWS/LANGUAGES/DEFAULT"),
        build=_number(build),
        revision=_number(revision),
        architecture=ARCHITECTURES.get(architecture, architecture),
        languages=tuple(one.text or "" for one in element.findall("WINDOWS/LANGUAGES/LANGUAGE")),
    )


def _number(digits: str) -> int | None:
    return int(digits) if re.fullmatch("[0-9]{1,9}", digits) else None
