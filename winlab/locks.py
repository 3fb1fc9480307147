"""Locks between processes. The kernel releases a lock when its holder ends, however it ends. None is reentrant."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from winlab.events import Progress


@contextmanager
def attempt(path: Path) -> Iterator[bool]:
    """Hold the lock file *path*; yields False if another process holds it."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield True  # closing the file releases the lock


@contextmanager
def held(path: Path, progress: Progress, doing: str) -> Iterator[None]:
    """Hold the lock file *path*; if another winlab holds it, wait, and report that it is *doing* that.

    The wait has no time limit.
    """
    begun = time.monotonic()
    while True:
        with attempt(path) as mine:
            if mine:
                yield
                return
        holder = path.read_text(encoding="ascii", errors="replace").strip() or "?"
        waited = time.monotonic() - begun
        progress.say(f"another winlab (process {holder}) is {doing}; waiting since {waited:.0f} s")
        time.sleep(0.5)


@contextmanager
def briefly(path: Path) -> Iterator[None]:
    """Hold the lock file *path*, which nobody holds for long: waits without reporting it."""
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def folder(path: Path) -> Iterator[bool]:
    """Hold a folder itself; yields False if another process holds it. It may be removed meanwhile.

    :raises OSError: it can't be opened.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)
