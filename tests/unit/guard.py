"""Unit tests do not touch the host: no process, no network, no file outside their temporary folder.

Enforced by an audit hook, which sees what a patched function would miss. A child of winlab/bounded.py is allowed: it
writes no file, and has none of the test's variables. A program that the test has written in its folder is allowed, too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from winlab import bounded, settings

_FORBIDDEN = {
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.forkpty",
    "os.system",
    "socket.connect",
    "socket.bind",
    "socket.getaddrinfo",
}
# changes of the file system, by the paths among their arguments
_CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "shutil.rmtree"}
base: Path | None = None  # where tests may write; None: nothing is guarded


class TouchedTheWorld(BaseException):
    """A unit test did what only integration tests may do. Not an Exception, so that nothing swallows it."""


def _hook(event: str, args: tuple[object, ...]) -> None:
    if base is None:
        return
    if event == "subprocess.Popen" and (
        bounded.CHILD in args[1]  # type: ignore[operator]
        or os.path.realpath(str(args[0])).startswith(f"{base}/")
    ):
        return
    if event in _FORBIDDEN:
        raise TouchedTheWorld(f"{event}{args!r}")
    if event in _CHANGES:
        for path in args:
            # a name relative to an open folder (rmtree) is judged by the folder, which was judged before
            if (
                isinstance(path, str | bytes)
                and Path(os.fsdecode(path)).is_absolute()
                and not _allowed(os.fsdecode(path))
            ):
                raise TouchedTheWorld(f"{event} {os.fsdecode(path)}")
    if event == "open" and len(args) == 3 and isinstance(args[0], str | bytes):
        flags = args[2] if isinstance(args[2], int) else 0
        path = os.fsdecode(args[0])
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not _allowed(path):
            raise TouchedTheWorld(f"writing {path}")


def _allowed(path: str) -> bool:
    resolved = os.path.realpath(path)
    ours = str(base)
    return resolved.startswith((ours, "/dev/null", "/dev/tty")) or "__pycache__" in resolved or "hypothesis" in resolved


sys.addaudithook(_hook)


@pytest.fixture(autouse=True)
def touch_nothing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every unit test is guarded: a conftest.py imports this, and its tests are."""
    global base
    inside = tmp_path_factory.getbasetemp().resolve()
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("WINLAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("NETRC", raising=False)
    monkeypatch.setenv("WINLAB_CACHE", str(home / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(home / "state"))
    monkeypatch.setenv("WINLAB_LIBVIRT_URI", "none:///system")  # libvirt's own code connects behind the guard's back
    monkeypatch.setattr(settings, "NORTHBOUND", f"unix:{home}/no-database")
    monkeypatch.setenv("WINLAB_SUPPORT_SECONDS", "0")  # a command that fails makes no archive
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    base = inside
    yield
    base = None
