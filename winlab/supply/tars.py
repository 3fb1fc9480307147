"""Reads tar archives that somebody else made, with limits: a small file must not fill the memory."""

from __future__ import annotations

import gzip
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

LARGEST_READ = 4 << 20  # bytes at once; extended headers are read whole, and are far smaller
MOST_MEMBERS = 100_000
_GZIP = b"\x1f\x8b"


class _Limited:
    """A file that refuses to be read in large pieces."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= LARGEST_READ:
            raise tarfile.ReadError(f"a header has {size:,} bytes")
        return self._file.read(size)

    def seek(self, place: int) -> int:
        return self._file.seek(place)

    def tell(self) -> int:
        return self._file.tell()


@contextmanager
def opened(path: Path, *, packed: bool = False) -> Iterator[tarfile.TarFile]:
    """A tar archive, to be read from its beginning to its end, in pieces of at most :data:`LARGEST_READ` bytes.

    :param packed: it may be compressed with gzip.
    :raises tarfile.TarError: it is no tar archive.
    :raises OSError: it can't be read.
    """
    with path.open("rb") as plain:
        head = plain.read(2)
        plain.seek(0)
        file = gzip.GzipFile(fileobj=plain) if packed and head == _GZIP else plain
        with over(cast(BinaryIO, file)) as archive:
            yield archive


@contextmanager
def over(file: BinaryIO) -> Iterator[tarfile.TarFile]:
    """As :func:`opened`, for an open file, which stays open."""
    with _told():
        archive = tarfile.open(fileobj=limited(file), mode="r:")  # noqa: SIM115 - closed below
    with archive:
        yield archive


def limited(file: BinaryIO) -> BinaryIO:
    """The file for :mod:`tarfile`, which can't read more than :data:`LARGEST_READ` bytes of it at once."""
    return cast(BinaryIO, _Limited(file))


def members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in order.

    :raises tarfile.TarError: the archive is damaged, has too many members, or one with holes, which has no end.
    """
    number = 0
    while (member := following(archive)) is not None:
        if number == MOST_MEMBERS:
            raise tarfile.ReadError(f"it has more than {MOST_MEMBERS:,} members")
        if member.issparse():
            raise tarfile.ReadError(f"'{member.name}' is a sparse file")
        yield member
        number += 1


def following(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    """The next member; None after the last.

    :raises tarfile.TarError: the archive is damaged.
    """
    with _told():
        return archive.next()


@contextmanager
def _told() -> Iterator[None]:
    """Turn what :mod:`tarfile` raises for odd headers (a size that is no number, a huge offset) into its own error."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise tarfile.ReadError(f"a header can't be read ({type(error).__name__}: {error})") from error
