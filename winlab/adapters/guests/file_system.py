"""What ``winlab cp`` needs of a file system: this host's, or a guest's by sftp or WinRM."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from winlab.design.system import System
from winlab.errors import GuestError

BLOCK = 1 << 20  # bytes that are read or written between two looks at the clock
MOST_NAMES = 1_000_000  # in one folder: a guest may send names endlessly
PLAIN = 0o777  # the permissions that are copied: none that make a program run as another user


@dataclass(frozen=True)
class Entry:
    """A file, a folder, or something else, such as a link or a device.

    :param size: bytes; 0 may also mean that it is unknown, as in /proc.
    :param changed: when its content was last changed, in seconds.
    """

    name: str
    kind: Literal["file", "folder", "other"]
    size: int = 0
    mode: int = 0o644
    changed: int = 0


class FileSystem(Protocol):
    """Files of this host or of a guest. Paths have ``/`` between folders, also on Windows.

    Every method raises :class:`~winlab.errors.UnreachableError` if the connection is lost, and another
    :class:`~winlab.errors.WinlabError` if the path can't be used.
    """

    name: str  # whose files they are, for messages
    has_modes: bool  # whether files have permissions as on Linux

    def absolute(self, path: str) -> str:
        """A path as the user gave it, as the other methods take it."""

    def shown(self, path: str) -> str:
        """A path of the other methods as users write it."""

    def is_legal(self, name: str) -> bool:
        """Whether a file in a folder can have this name. Anything else might be outside of the folder."""

    def look(self, path: str) -> Entry | None:
        """What is there, at the end of links; None if nothing is."""

    def entries(self, folder: str) -> Iterator[Entry]:
        """What is in a folder. Links are not followed."""

    def read(self, path: str, offset: int, size: int) -> Iterator[bytes]:
        """A file's bytes from *offset*, *size* of them at most; fewer if the file ends before that."""

    def write(self, path: str, offset: int, blocks: Iterable[bytes]) -> None:
        """Write to a file from *offset*, where it then ends; a new one is for its owner alone. Links are not followed.

        :param offset: 0, or no more than the file's size.
        """

    def replace(self, path: str, target: str, mode: int | None) -> None:
        """Rename a file; an earlier target is replaced.

        :param mode: its permissions, where the system has such; None: the default for new files.
        """

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, unless it is there."""

    def remove(self, path: str) -> None:
        """Remove a file, if it can be removed."""

    def close(self) -> None:
        """End the connection."""


def is_legal(name: str, system: System) -> bool:
    """Whether a file of a system can have this name.

    On Windows that excludes names with a colon, which is a stream of another file.
    """
    if name in ("", ".", "..") or set(name) & set("/\0"):
        return False
    paths = system.paths
    return paths.separator == "/" or re.fullmatch(paths.form, f"C:{paths.separator}{name}") is not None


def bounded(entries: Iterable[Entry], folder: str) -> Iterator[Entry]:
    """The entries of a guest's folder.

    :raises GuestError: they don't end.
    """
    for number, entry in enumerate(entries):
        if number >= MOST_NAMES:
            raise GuestError(f"'{folder}' has more than {MOST_NAMES:,} entries.", cure="Copy its folders one by one.")
        yield entry
