"""Extracts single files from ``.tar.gz``, ``.tgz`` and ``.zip``. Names in an archive never decide where a file goes."""

from __future__ import annotations

import errno
import gzip
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from winlab.errors import TransferError, UsageError
from winlab.supply import tars
from winlab.supply.artifacts import web

_TAR = (".tar.gz", ".tgz")
LARGEST = 1 << 30  # bytes of one member; the largest program has a tenth of that
_BLOCK = 1024 * 1024


def members(archive: Path, wanted: Mapping[str, Path]) -> set[str]:
    """Write the plain files *wanted* (path in the archive → where to) and return the paths that were found.

    A leading ``./`` in the archive's names makes no difference.

    :raises TransferError: the archive is broken, or a wanted member is not a plain file.
    :raises UsageError: it is another kind of archive.
    """
    targets = {_clean(name): (name, target) for name, target in wanted.items()}
    try:
        if archive.name.endswith(_TAR):
            return _untar(archive, targets)
        if archive.name.endswith(".zip"):
            return _unzip(archive, targets)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        NotImplementedError,
        RuntimeError,
        ValueError,
        LookupError,
        OverflowError,
        struct.error,
        lzma.LZMAError,
    ) as error:
        raise _broken(archive, error) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):
            raise  # of the disk; the others are bz2's and a seek's, for what the archive says
        raise _broken(archive, error) from error
    raise UsageError(f"'{archive.name}' is not a supported archive.", cure=f"Known are: {', '.join((*_TAR, '.zip'))}.")


def _broken(archive: Path, error: Exception) -> TransferError:
    return TransferError(
        f"'{archive.name}' can't be unpacked.", why=web.reason(error), cure="Try another mirror.", causes=[error]
    )


def _untar(archive: Path, targets: Mapping[str, tuple[str, Path]]) -> set[str]:
    """Read it once from the beginning: seeking in a compressed archive is expensive."""
    names: set[str] = set()
    with tars.opened(archive, packed=True) as packed:
        for entry in tars.members(packed):
            if _clean(entry.name) not in targets:
                continue
            name, target = targets[_clean(entry.name)]
            reader = packed.extractfile(entry) if entry.isfile() else None
            if reader is None:
                raise TransferError(f"'{name}' in '{archive.name}' is not a plain file.", cure="Try another mirror.")
            with reader:
                _save(reader, target, f"'{name}' in '{archive.name}'")
            names.add(name)
            if len(names) == len(targets):
                break
    return names


def _unzip(archive: Path, targets: Mapping[str, tuple[str, Path]]) -> set[str]:
    names: set[str] = set()
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            if _clean(entry.filename) in targets:
                name, target = targets[_clean(entry.filename)]
                with packed.open(entry) as reader:
                    _save(reader, target, f"'{name}' in '{archive.name}'")
                names.add(name)
    return names


def _clean(name: str) -> str:
    return name.removeprefix("./")


def _save(reader: IO[bytes], target: Path, what: str) -> None:
    """Write a member to *target*.

    :raises TransferError: it is larger than any program.
    """
    left = LARGEST
    with target.open("wb") as writer:
        while block := reader.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise TransferError(f"{what} is larger than {LARGEST:,} bytes.", cure="Try another mirror.")
            writer.write(block)
