"""Whether a machine's screen changes."""

from __future__ import annotations

COLUMNS, ROWS = 64, 48  # the points of a screen that are compared
SHADES = 8  # that are distinguished
MOVED = 0.02  # of the points must differ: a cursor or a spinner alone is not progress


def signature(ppm: bytes) -> bytes:
    """A few thousand points of a picture (binary PPM, 8 bits), each reduced to a shade; empty for another format."""
    fields = ppm.split(maxsplit=4)
    if len(fields) < 4 or fields[0] != b"P6" or fields[3] != b"255":
        return b""
    if not all(number.isdigit() and len(number) < 6 for number in fields[1:3]):
        return b""
    width, height = int(fields[1]), int(fields[2])
    begin = len(ppm) - width * height * 3
    if begin < 0:
        return b""
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
