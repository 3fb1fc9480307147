"""This host's files, for ``winlab cp``."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from winlab import files
from winlab.adapters.guests import file_system
from winlab.adapters.guests.file_system import BLOCK, PLAIN, Entry
from winlab.design.system import LINUX
from winlab.errors import NotFoundError, UsageError


class LocalFiles:
    """See :class:`winlab.adapters.guests.file_system.FileSystem`."""

    name = "this host"
    has_modes = True

    def absolute(self, path: str) -> str:
        """Links in it are not resolved."""
        return os.path.normpath(Path(path).expanduser().absolute())

    def shown(self, path: str) -> str:
        """As it is."""
        return path

    def is_legal(self, name: str) -> bool:
        """Any name without a slash."""
        return file_system.is_legal(name, LINUX)

    def look(self, path: str) -> Entry | None:
        """See the interface."""
        with _explained(path):
            try:
                return _entry(Path(path).name, os.stat(path))  # noqa: PTH116 - as for the entries of a folder
            except FileNotFoundError:
                return None

    def entries(self, folder: str) -> Iterator[Entry]:
        """See the interface."""
        with _explained(folder), os.scandir(folder) as found:
            for one in found:
                yield _entry(one.name, one.stat(follow_symlinks=False))

    def read(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """See the interface."""
        with _explained(path), Path(path).open("rb") as file:
            file.seek(offset)
            while size > 0 and (block := file.read(min(size, BLOCK))):
                size -= len(block)
                yield block

    def write(self, path: str, offset: int, blocks: Iterable[bytes]) -> None:
        """See the interface."""
        with _explained(path):
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
            with os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
                    raise UsageError(f"'{path}' is not a file of yours.", cure="Remove it, or copy to another folder.")
                file.truncate(offset)
                file.seek(offset)
                for block in blocks:
                    rest = memoryview(block)
                    while rest:
                        rest = rest[file.write(rest) or 0 :]

    def replace(self, path: str, target: str, mode: int | None) -> None:
        """See the interface. The umask applies to *mode*, and nothing but a regular file is replaced."""
        files.check_named(Path(target), stream=False)
        with _explained(target):
            mask = os.umask(0o077)
            os.umask(mask)
            Path(path).chmod((0o666 if mode is None else mode & PLAIN) & ~mask | stat.S_IRUSR | stat.S_IWUSR)
            Path(path).replace(target)

    def make_folder(self, path: str) -> None:
        """See the interface."""
        with _explained(path):
            Path(path).mkdir(parents=True, exist_ok=True)

    def remove(self, path: str) -> None:
        """See the interface."""
        with suppress(OSError):
            Path(path).unlink()

    def close(self) -> None:
        """There is no connection."""


def _entry(name: str, about: os.stat_result) -> Entry:
    mode = about.st_mode
    kind = "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"
    size = about.st_size if kind == "file" else 0
    return Entry(name, kind, size, stat.S_IMODE(mode), int(about.st_mtime))  # type: ignore[arg-type]


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Explain an error of this host's files.

    :raises NotFoundError: there is no such file.
    :raises UsageError: it can't be used for another reason.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no '{path}'.", why=str(error)) from error
    except OSError as error:
        if error.errno in files.FULL:
            raise UsageError(
                f"There is no space left for '{path}'.",
                why=str(error),
                cure="Free some space, then run the same command again: it resumes.",
            ) from error
        raise UsageError(f"'{path}' can't be used.", why=str(error)) from error
