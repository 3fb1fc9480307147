"""A local file on its way into a volume: in pieces, with its holes, from any place on."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

CHUNK = 1 << 18
HOLE = 64 << 20  # bytes of a hole in one piece: a longer one would delay the progress
ZEROS = bytes(1 << 20)


class Source:
    """A file, how many of its bytes were read (``at``), and their SHA-256."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.at = 0
        self._sha256 = hashlib.sha256()

    @property
    def part(self) -> float:
        """How much of it was read, 0 to 1."""
        return self.at / self.size if self.size else 1.0

    @property
    def sha256(self) -> str:
        """The SHA-256 of what was read."""
        return self._sha256.hexdigest()

    def pieces(self, end: int | None = None) -> Iterator[bytes | int]:
        """What follows: bytes, or the length of a hole. A piece counts as read when the next one is asked for.

        :param end: where to stop; by default at the end of the file.
        :raises OSError: it can't be read.
        """
        end = self.size if end is None else min(end, self.size)
        with self.path.open("rb") as file:
            while self.at < end and (piece := _piece(file.fileno(), self.at, end)):
                yield piece
                self._count(piece)

    def _count(self, piece: bytes | int) -> None:
        left = piece if isinstance(piece, int) else 0
        if isinstance(piece, bytes):
            self._sha256.update(piece)
            self.at += len(piece)
        self.at += left
        while left:
            self._sha256.update(ZEROS[:left])
            left -= min(left, len(ZEROS))


def _piece(file: int, at: int, end: int) -> bytes | int:
    """What is in a file at a place before *end*; no bytes if the file has become shorter.

    A file system that knows no holes reports none (lseek(2)).
    """
    try:
        data = os.lseek(file, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:  # there is no data from here on
            raise
        data = os.fstat(file).st_size
        if data <= at:
            return b""
    if data > at:
        return min(data - at, end - at, HOLE)
    return os.pread(file, min(CHUNK, os.lseek(file, at, os.SEEK_HOLE) - at, end - at), at)
