"""A machine's screen: whether it changes, and as a small picture."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Literal

from winlab.errors import WinlabError

COLUMNS, ROWS = 64, 48  # the pixels of a screen that are compared
SHADES = 8  # that are distinguished
MOVED = 0.02  # of the pixels must differ: a cursor or a spinner alone is not progress
WIDEST = 1280  # of a small picture; only every second pixel of a larger screen is used
ALTERED = 0.0005  # of a small picture: a line of text is more, a cursor or a spinner less
QUARTER, HALF, SHADE, LEFT = (
    bytes(value // 4 for value in range(256)),
    bytes(value // 2 for value in range(256)),
    bytes(value >> 4 for value in range(256)),
    bytes(value & 0xF0 for value in range(256)),
)


@dataclass(frozen=True)
class Picture:
    """A screen in sixteen shades of gray, two pixels in a byte; each row begins a new byte."""

    width: int
    height: int
    points: bytes

    def differs(self, other: Picture) -> bool:
        """Whether more has changed than a cursor or a spinner."""
        if (self.width, self.height) != (other.width, other.height):
            return True
        changed = int.from_bytes(self.points, "big") ^ int.from_bytes(other.points, "big")
        same = changed.to_bytes(len(self.points), "big").count(0)
        return len(self.points) - same > ALTERED * len(self.points)

    def png(self) -> bytes:
        """The picture as a PNG file. Source: the PNG specification, sections 5, 7.2 and 9."""
        row = self.width // 2
        rows = b"".join(b"\0" + self.points[y * row : (y + 1) * row] for y in range(self.height))
        header = struct.pack(">IIBBBBB", self.width, self.height, 4, 0, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
            for kind, body in ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        )


def converted(image: bytes, to: Literal["PNG", "PPM"]) -> bytes:
    """A screen in another format. libvirt gives a PNG from QEMU 7.1 on, a binary PPM before.

    One that already has the format is returned unchanged.

    :raises WinlabError: it is in neither format, or can't be converted because it is damaged.
    """
    from PIL import Image

    made = io.BytesIO()
    try:
        with Image.open(io.BytesIO(image), formats=("PNG", "PPM")) as opened:
            if opened.format == to:
                return image
            opened.convert("RGB").save(made, to)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise WinlabError("The hypervisor sent a screen image in an unknown format.", why=repr(image[:20])) from error
    return made.getvalue()


def reduced(ppm: bytes) -> Picture | None:
    """A small picture of a screen (binary PPM, 8 bits); None for another format."""
    size = _size(ppm)
    if size is None:
        return None
    width, height = size
    step = 2 if width > WIDEST else 1
    begin, wide = len(ppm) - width * height * 3, width // step // 2 * 2  # two pixels make a byte
    rows = bytearray()
    for y in range(0, height, step):
        line = ppm[begin + y * width * 3 : begin + (y + 1) * width * 3]
        red, green, blue = (line[colour::3][::step][:wide] for colour in range(3))
        # whole rows at once as large numbers: no sum of three bytes is larger than a byte
        parts = (red.translate(QUARTER), green.translate(HALF), blue.translate(QUARTER))
        grey = sum(int.from_bytes(part, "big") for part in parts).to_bytes(wide, "big")
        left, right = grey[::2].translate(LEFT), grey[1::2].translate(SHADE)
        rows += (int.from_bytes(left, "big") | int.from_bytes(right, "big")).to_bytes(wide // 2, "big")
    return Picture(wide, len(range(0, height, step)), bytes(rows)) if rows else None


def _size(ppm: bytes) -> tuple[int, int] | None:
    """Width and height of a binary PPM with 8 bits that has all of its pixels; None for anything else."""
    fields = ppm[:100].split(maxsplit=4)
    if len(fields) < 4 or fields[0] != b"P6" or fields[3] != b"255":
        return None
    if not all(number.isdigit() and len(number) < 6 for number in fields[1:3]):
        return None
    width, height = int(fields[1]), int(fields[2])
    return (width, height) if len(ppm) >= width * height * 3 else None


def signature(ppm: bytes) -> bytes:
    """A few thousand pixels of a picture (binary PPM, 8 bits), each reduced to a shade; empty for another format."""
    size = _size(ppm)
    if size is None:
        return b""
    width, height = size
    begin = len(ppm) - width * height * 3
    points = bytearray()
    for row in range(ROWS):
        line = begin + (row * height // ROWS) * width * 3
        for column in range(COLUMNS):
            at = line + (column * width // COLUMNS) * 3
            points.append(sum(ppm[at : at + 3]) * SHADES // 766)
    return bytes(points)


def differs(one: bytes, other: bytes) -> bool:
    """Whether something happened on the screen between two signatures."""
    if len(one) != len(other):
        return True
    return sum(a != b for a, b in zip(one, other, strict=True)) > MOVED * len(one)
