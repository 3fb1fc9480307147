"""Unit tests touch nothing: no process, no network, no file outside their temporary folder.

Enforced by an audit hook, which sees what a patched function would miss.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

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
_guarded: Path | None = None


class TouchedTheWorld(BaseException):
    """A unit test did what only integration tests may do. Not an Exception, so that nothing swallows it."""


def _hook(event: str, args: tuple[object, ...]) -> None:
    if _guarded is None:
        return
    if event in _FORBIDDEN:
        raise TouchedTheWorld(f"{event}{args!r}")
    if event == "open" and len(args) == 3 and isinstance(args[0], str | bytes):
        flags = args[2] if isinstance(args[2], int) else 0
        path = os.fsdecode(args[0])
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and not _allowed(path):
            raise TouchedTheWorld(f"writing {path}")


def _allowed(path: str) -> bool:
    resolved = os.path.realpath(path)
    ours = str(_guarded)
    return resolved.startswith((ours, "/dev/null", "/dev/tty")) or "__pycache__" in resolved or "hypothesis" in resolved


sys.addaudithook(_hook)


@pytest.fixture(autouse=True)
def _touch_nothing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    global _guarded
    base = tmp_path_factory.getbasetemp().resolve()
    home = tmp_path_factory.mktemp("home")
    for name in ("WINLAB_LAB", "WINLAB_SPEC", "WINLAB_MIRROR", "WINLAB_DEBIAN_MIRROR", "WINLAB_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("WINLAB_CACHE", str(home / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(home / "state"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    _guarded = base
    yield
    _guarded = None
