"""Locks between processes, and writing that survives a power cut: what the caches of images and artifacts share."""

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
    """Hold the lock file *path*, or not if another process holds it."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield True  # closing lets it go


@contextmanager
def held(path: Path, progress: Progress, doing: str) -> Iterator[None]:
    """Hold the lock file *path*; if another winlab has it, wait, and say that it is *doing* that.

    There is no limit: the kernel lets go of a lock when its holder ends, however it ends. Not reentrant.
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


def sync(path: Path) -> None:
    """See that a file's or folder's content is on the disk: a rename must not be there without it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
