"""Files that are never half written, and their digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from winlab import files
from winlab.errors import UsageError


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_large_file_is_written_where_nobody_can_wait_for_it(tmp_path: Path) -> None:
    """A link under a known name would be followed, by root if need be."""
    victim, path = tmp_path / "victim", tmp_path / "x.tar"
    victim.write_text("theirs")
    for name in ("x.tar.part", "x.tar.partial"):
        (tmp_path / name).symlink_to(victim)
    with files.replacing(path) as fresh:
        assert mode(fresh.parent) == 0o700
        fresh.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with pytest.raises(FileNotFoundError), files.replacing(path) as fresh:
        (fresh / "half").write_text("half")
    assert (path.read_text(), victim.read_text()) == ("new", "theirs")
    assert {one.name for one in tmp_path.iterdir()} == {"victim", "x.tar", "x.tar.part", "x.tar.partial"}


@pytest.mark.parametrize(("content", "expected"), [("é\n", b"\xc3\xa9\n"), (b"\x00\xff", b"\x00\xff"), ("", b"")])
def test_content_replaces_what_was_there(tmp_path: Path, content: str | bytes, expected: bytes) -> None:
    path = tmp_path / "file"
    for durable in (False, True):
        files.write_atomic(path, content, durable=durable)
        assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_modes(tmp_path: Path, umask: None) -> None:
    files.write_atomic(tmp_path / "usual", "")
    files.write_atomic(tmp_path / "exact", "", mode=0o644)  # wider than the umask: host facts are for everybody
    files.write_atomic(tmp_path / "secret", "", mode=0o600)
    assert [mode(tmp_path / name) for name in ("usual", "exact", "secret")] == [0o640, 0o644, 0o600]


def test_a_secret_is_never_open_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []
    written = os.fchmod

    def spy(handle: int, wanted: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        written(handle, wanted)

    monkeypatch.setattr(os, "fchmod", spy)
    files.write_atomic(tmp_path / "file", "secret", mode=0o600)
    assert modes == [0o600]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_atomic(path, "new", durable=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_atomic(tmp_path / "folder", "x")
    with pytest.raises(IsADirectoryError):
        files.replace_link(tmp_path / "folder", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_is_made_and_pointed_elsewhere(tmp_path: Path) -> None:
    link = tmp_path / "link"
    for target in ("one", "two"):
        files.replace_link(link, tmp_path / target)
        assert link.readlink() == tmp_path / target
    assert list(tmp_path.iterdir()) == [link]


class Told:
    def __init__(self) -> None:
        self.fractions: list[float | None] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.fractions.append(fraction)


def test_digests(tmp_path: Path) -> None:
    path, told = tmp_path / "file", Told()
    content = b"x" * (2 * files.BLOCK + 1)
    path.write_bytes(content)
    assert files.sha256(path) == files.sha256(path, told) == hashlib.sha256(content).hexdigest()
    assert told.fractions[-1] == 1.0
    assert len(told.fractions) == 3
    with pytest.raises(UsageError, match="none' can't be read"):
        files.sha256(tmp_path / "none")
