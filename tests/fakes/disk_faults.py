"""A disk that fails at the n-th change: full, read-only, broken, or gone."""

from __future__ import annotations

import builtins
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHANGES = ("mkdir", "rename", "replace", "symlink", "link", "chmod", "fchmod", "fsync", "truncate", "ftruncate")
REMOVALS = ("unlink", "remove", "rmdir")  # a full disk still allows these


class Disk:
    """Counts the changes below *folder*; the n-th fails with *number*, and all later ones if *stays*."""

    def __init__(self, folder: Path, fail_at: int, number: int, *, stays: bool, removals: bool) -> None:
        self.folder, self.fail_at, self.number, self.stays = str(folder), fail_at, number, stays
        self.removals = removals
        self.count = 0
        self.failed = ""

    def change(self, what: str) -> None:
        self.count += 1
        if self.count == self.fail_at or (self.stays and self.count > self.fail_at):
            self.failed = self.failed or what
            raise OSError(self.number, os.strerror(self.number), what)

    def concerns(self, path: object) -> bool:
        if isinstance(path, int):
            try:
                path = Path(f"/proc/self/fd/{path}").readlink()
            except OSError:
                return False
        return isinstance(path, str | os.PathLike) and os.path.abspath(os.fspath(path)).startswith(self.folder)  # noqa: PTH100 - links stay


class _File:
    """An open file whose writes count."""

    def __init__(self, file: Any, disk: Disk, name: str) -> None:
        self._file, self._disk, self._name = file, disk, name

    def write(self, data: Any) -> Any:
        self._disk.change(f"write {self._name}")
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)


@contextmanager
def failing(folder: Path, fail_at: int, number: int, *, stays: bool, removals: bool = False) -> Iterator[Disk]:
    """The n-th change below *folder* fails inside the block."""
    disk = Disk(folder, fail_at, number, stays=stays, removals=removals)

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if any(disk.concerns(one) for one in args[:2]):
                disk.change(f"{name} {args[0]}")
            return real(*args, **named)

        return call

    def opened(path: Any, flags: int, *args: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and disk.concerns(path):
            disk.change(f"open {path}")
        return real_open(path, flags, *args, **named)

    def file_opened(path: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        writes = any(letter in mode for letter in "wax+") and disk.concerns(path)
        if writes and not isinstance(path, int):
            disk.change(f"open {path}")
        file = real_file(path, mode, *args, **named)
        return _File(file, disk, str(path)) if writes else file

    real_open, real_file = os.open, io.open
    with pytest.MonkeyPatch.context() as patch:
        for name in (*CHANGES, *(REMOVALS if removals else ())):
            patch.setattr(os, name, counted(name, getattr(os, name)))
        patch.setattr(os, "open", opened)
        patch.setattr(io, "open", file_opened)
        patch.setattr(builtins, "open", file_opened)
        patch.setattr(shutil, "_USE_CP_SENDFILE", False)
        yield disk
