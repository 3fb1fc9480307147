"""Locks between processes. The kernel releases a lock when its holder ends, however it ends. None is reentrant."""

from __future__ import annotations

import fcntl
import os
import platform
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from winlab.digits import is_number

if TYPE_CHECKING:
    from winlab.events import Progress


@contextmanager
def attempt(path: Path) -> Iterator[bool]:
    """Hold the lock file *path*; yields False if another process holds it. Its holder may remove the file.

    :raises OSError: it can't be opened.
    """
    with _open(path, fcntl.LOCK_EX | fcntl.LOCK_NB) as file:
        if file is None:
            yield False
            return
        # who holds it is only for people: a full disk must not keep anyone from a lock
        with suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, str(os.getpid()).encode(), 0)  # no buffer, which closing would try to write once more
        yield True  # closing the file releases the lock


def holder(path: Path) -> str:
    """The id of the process that holds the lock file; ``?`` if that is not known."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or "?"
    except OSError:
        return "?"


def holding(path: Path) -> int | None:
    """The process that holds the lock file now; None if there is none, or it can't be known.

    The lock is not touched: to try it might keep another process from it. The kernel lists locks in /proc/locks with
    process and inode (proc(5)); the device is ignored, because some file systems list one that stat does not give.
    """
    pid = holder(path)
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for words in map(str.split, lines):
        if len(words) > 5 and words[1] == "FLOCK" and words[4] == pid and words[5].rpartition(":")[2] == inode:
            return int(pid)
    return None


def owner(pid: int) -> str:
    """The name of the user that a process belongs to; empty if there is no such process."""
    try:
        number = Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


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
        waited = time.monotonic() - begun
        progress.say(f"another winlab (process {holder(path)}) is {doing}; waiting for {waited:.0f} s")
        time.sleep(0.5)


@contextmanager
def briefly(path: Path) -> Iterator[None]:
    """Hold the lock file *path*, which no process holds for long: waits without reporting it."""
    with _open(path, fcntl.LOCK_EX):
        yield


@contextmanager
def _open(path: Path, how: int) -> Iterator[int | None]:
    """The locked file's descriptor; None if another process holds it.

    A file that was removed while we waited for its lock protects nothing: the next process locks a new one.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # others must not be able to hold it, whatever the umask
        try:
            try:
                fcntl.flock(file, how)
            except BlockingIOError:
                yield None
                return
            if _is_at(path, file):
                yield file
                return
        finally:
            os.close(file)


def _is_at(path: Path, file: int) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


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


def signature() -> str:
    """This process in a word each for host, boot, process id and start, for locks that the kernel does not release."""
    return f"{_host()} {_boot()} {os.getpid()} {_start(os.getpid())}"


def signer(text: str) -> int | None:
    """The process id in a :func:`signature`; None if the text is none."""
    words = text.split()
    return int(words[2]) if len(words) == 4 and is_number(words[2]) else None


def is_gone(text: str) -> bool:
    """Whether the process of a :func:`signature` has surely ended: nothing is known of one on another host."""
    pid = signer(text)
    if pid is None or not is_here(text):
        return False
    _, boot, _, start = text.split()
    if boot != _boot():
        return True
    started = _start(pid)
    return started != start if started else not _exists(pid)


def is_here(text: str) -> bool:
    """Whether a text is the :func:`signature` of a process on this host that can be seen from here, gone or not."""
    return signer(text) is not None and text.split()[0] == _host()


def _host() -> str:
    """This host, or this container: processes of another one have other ids."""
    return f"{platform.node()}/{Path('/proc/self/ns/pid').stat().st_ino}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # someone else's
    return True


def _start(pid: int) -> str:
    """When a process started, in clock ticks since the boot (proc(5), stat); empty if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""  # also where /proc hides other users' processes: see is_gone
    return text.rpartition(")")[2].split()[19]  # the program's name before it may contain anything
