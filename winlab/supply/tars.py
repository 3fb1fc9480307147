"""Reads tar archives that someone else made, with limits: a small file must not fill the memory."""

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
LONGEST_NAME = 4096  # characters: Linux's PATH_MAX
LARGEST_NAMES = 16 << 20  # characters of all names together
LARGEST_EXTRAS = 64 << 10  # characters of a member's extended header, and of what it holds for all members
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
    :raises tarfile.TarError: it is not a tar archive.
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
    number = named = 0
    while (member := following(archive)) is not None:
        named += len(member.name) + len(member.linkname)
        if number == MOST_MEMBERS or named > LARGEST_NAMES:
            raise tarfile.ReadError(f"it has more than {MOST_MEMBERS:,} members, or very long names")
        if member.issparse():
            raise tarfile.ReadError(f"'{member.name}' is a sparse file")
        yield member
        number += 1


def following(archive: tarfile.TarFile) -> tarfile.TarInfo | None:
    """The next member; None after the last. The archive itself keeps none: what they take must not add up.

    :raises tarfile.TarError: the archive is damaged, or a header is far longer than real ones.
    """
    with _told():
        member = archive.next()
        archive.members.clear()  # type: ignore[attr-defined]
        if member is None:
            return None
        if max(len(member.name), len(member.linkname)) > LONGEST_NAME:
            raise tarfile.ReadError(f"a name has more than {LONGEST_NAME:,} characters")
        for extras in (member.pax_headers, archive.pax_headers):
            if sum(len(name) + len(value) for name, value in extras.items()) > LARGEST_EXTRAS:
                raise tarfile.ReadError("an extended header is too long")
        return member


@contextmanager
def _told() -> Iterator[None]:
    """Turn what :mod:`tarfile` raises for odd headers (a size that is not a number, a huge offset) into TarError."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error) as error:
        raise tarfile.ReadError(f"a header can't be read ({type(error).__name__}: {error})") from error
