"""The file of an exported snapshot.

It is an uncompressed tar archive for its owner alone (0600), because it has the lab's secrets::

    snapshot.json      first: the version of the format, and a row for each member
    record.json        the snapshot's record
    <name>             the content of a volume; names are those that an Item has

Each member but the first is compressed (zlib): memory is mostly zeros. Sizes and digests are known only when all of it
is written, so the place of ``snapshot.json`` is filled last. The digests are those of the contents.

The author of a file decides everything in it. So it is read with limits, and no member counts before its digest is
right.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from winlab import files
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.supply import tars

INDEX = "snapshot.json"
LARGEST_INDEX = 1 << 20  # bytes
LARGEST = 1 << 50  # bytes of a member
BLOCK = 1 << 20
FASTEST = 1  # of zlib's levels
Content = Callable[[], Generator[bytes, None, None]]


class Row(BaseModel):
    """A member: its size and digest, and how many bytes it has in the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,98}$")
    size: int = Field(ge=0, le=LARGEST)
    packed: int = Field(ge=0, le=LARGEST)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class _Index(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    members: tuple[Row, ...] = Field(max_length=1000)

    @field_validator("members")
    @classmethod
    def _each_once(cls, value: tuple[Row, ...]) -> tuple[Row, ...]:
        if len({row.name for row in value}) != len(value):
            raise ValueError("a member is listed twice")
        return value


def write(path: Path, members: Mapping[str, Content]) -> None:
    """Write a file. It appears under its name when it is complete.

    :param members: their contents, in the order in which they are written.
    :raises UsageError: *path* is a stream, device, pipe or socket.
    :raises HostError: it can't be written, as when there is no space. Nothing is left of it.
    """
    try:
        with files.replacing(path) as partial:
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                _write(file, members)
            files.sync(partial)
    except OSError as error:
        raise HostError(
            f"The file '{path}' can't be written.",
            why=str(error),
            cure="Name a file in a folder with enough space; 'winlab snapshot list' shows how much a snapshot takes.",
            causes=[error],
        ) from error


def _write(file: BinaryIO, members: Mapping[str, Content]) -> None:
    room = len(_text([Row(name=name, size=LARGEST, packed=LARGEST, sha256="0" * 64) for name in members]))
    file.write(_header(INDEX, room) + bytes(room + _fill(room)))
    rows = []
    for name, content in members.items():
        with closing(content()) as chunks:
            rows.append(_write_member(file, name, chunks))
    file.write(bytes(2 * tarfile.BLOCKSIZE))
    file.seek(tarfile.BLOCKSIZE)
    file.write(_text(rows).ljust(room))


def _write_member(file: BinaryIO, name: str, chunks: Iterator[bytes]) -> Row:
    begin = file.tell()
    file.write(bytes(tarfile.BLOCKSIZE))
    packer, sha256, size = zlib.compressobj(FASTEST), hashlib.sha256(), 0
    for chunk in chunks:
        sha256.update(chunk)
        size += len(chunk)
        file.write(packer.compress(chunk))
    file.write(packer.flush())
    packed = file.tell() - begin - tarfile.BLOCKSIZE
    file.write(bytes(_fill(packed)))
    end = file.tell()
    file.seek(begin)
    file.write(_header(name, packed))
    file.seek(end)
    return Row(name=name, size=size, packed=packed, sha256=sha256.hexdigest())


def _text(rows: Sequence[Row]) -> bytes:
    return _Index(members=tuple(rows)).model_dump_json().encode()


def _header(name: str, size: int) -> bytes:
    """The header of a member: one block, because the name is short, and GNU's format has numbers of any size."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o400
    return member.tobuf(tarfile.GNU_FORMAT)


def _fill(size: int) -> int:
    return -size % tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Archive:
    """A file whose structure was checked, while it is open."""

    path: Path
    rows: Mapping[str, Row]
    _file: BinaryIO
    _places: Mapping[str, int]

    def read(self, name: str, most: int) -> bytes:
        """The content of a small member.

        :raises TransferError: it is damaged, or has more than *most* bytes.
        """
        if self.rows[name].size > most:
            raise _damaged(self.path, f"'{name}' has {self.rows[name].size:,} bytes, and may have {most:,}.")
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of a member, in pieces of at most :data:`BLOCK` bytes. It counts only after the last piece.

        :raises TransferError: it is not as its row says.
        """
        row, sha256, size = self.rows[name], hashlib.sha256(), 0
        place, end = self._places[name], self._places[name] + row.packed
        unpacker = zlib.decompressobj()
        try:
            while not unpacker.eof:
                packed = unpacker.unconsumed_tail
                if not packed:
                    packed = os.pread(self._file.fileno(), min(BLOCK, end - place), place)
                    place += len(packed)
                piece = unpacker.decompress(packed, BLOCK)
                if not piece and not packed:
                    break  # cut off
                sha256.update(piece)
                size += len(piece)
                if size > row.size:
                    break
                if piece:
                    yield piece
        except zlib.error as error:
            raise _damaged(self.path, f"'{name}' can't be unpacked: {error}") from error
        except OSError as error:
            raise _unreadable(self.path, error) from error
        whole = unpacker.eof and place == end and not unpacker.unused_data
        if not whole or (size, sha256.hexdigest()) != (row.size, row.sha256):
            raise _damaged(self.path, f"'{name}' does not match its row.")


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """Open a file for the length of a with-block, and check its structure. The contents are not read yet.

    :raises NotFoundError: there is no such file.
    :raises UsageError: it is not an exported snapshot, or this winlab does not know the version of its format.
    :raises TransferError: it is truncated, or members are missing or superfluous.
    """
    if files.is_no_file(path):
        raise _no_snapshot(path, "It is not a file.")
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file '{path}'.", cure="'winlab snapshot export' makes one.") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    with file:
        try:
            with tars.over(file) as tar:
                archive = _checked(path, file, tar)
        except tarfile.TarError as error:
            raise _no_snapshot(path, f"It is not a tar archive, or is damaged: {error}.") from error
        except OSError as error:
            raise _unreadable(path, error) from error
        yield archive


def _checked(path: Path, file: BinaryIO, tar: tarfile.TarFile) -> Archive:
    first = tars.following(tar)
    if first is None or first.name != INDEX or not first.isreg() or not 0 <= first.size <= LARGEST_INDEX:
        raise _no_snapshot(path, f"It does not begin with '{INDEX}'.")
    rows = _rows(path, os.pread(file.fileno(), first.size, first.offset_data))
    places: dict[str, int] = {}
    end = os.fstat(file.fileno()).st_size
    for row in rows:
        member = tars.following(tar)
        if member is None or (member.name, member.size) != (row.name, row.packed):
            raise _damaged(path, f"'{row.name}' is not at its expected place.")
        if not member.isreg() or member.issparse() or member.offset_data + member.size > end:
            raise _damaged(path, f"'{row.name}' is not a plain member, or cut off.")
        places[row.name] = member.offset_data
    if tars.following(tar) is not None:
        raise _damaged(path, "It contains more than it lists.")
    return Archive(path, {row.name: row for row in rows}, file, places)


def _rows(path: Path, text: bytes) -> tuple[Row, ...]:
    try:
        return _Index.model_validate_json(text).members
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["loc"] == ("format",):
            raise UsageError(
                f"The file '{path}' has a format that this winlab does not know: {str(first['input'])[:20]}.",
                cure="Use the version of winlab that wrote it, or a newer one.",
            ) from error
        raise _damaged(path, f"Its '{INDEX}' can't be used: {first['msg']}.") from error


def _unreadable(path: Path, error: OSError) -> HostError:
    return HostError(f"'{path}' can't be read.", why=str(error), causes=[error])


def _no_snapshot(path: Path, why: str) -> UsageError:
    return UsageError(f"'{path}' is not an exported snapshot.", why=why, cure="'winlab snapshot export' makes one.")


def _damaged(path: Path, why: str) -> TransferError:
    return TransferError(
        f"The exported snapshot '{path}' is damaged.",
        why=why,
        cure="Copy the file again, or export the snapshot again.",
    )
