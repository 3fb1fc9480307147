"""Files that are never half written, and their digests."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import stat
import tempfile
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


def test_a_large_file_is_written_under_an_unpredictable_name(tmp_path: Path) -> None:
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


def test_a_file_that_the_user_named_is_never_written_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("theirs")
    path.symlink_to(victim)
    files.write_named(path, "ours")
    assert (path.read_text(), path.is_symlink(), victim.read_text()) == ("ours", False, "theirs")
    path.unlink()
    path.symlink_to(tmp_path / "made by this")
    files.write_named(path, b"ours")
    assert {one.name for one in tmp_path.iterdir()} == {"victim", "page.html"}


def test_an_earlier_file_stays_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "page.html"
    files.write_named(path, "earlier")
    monkeypatch.setattr(os, "fdopen", lambda *_: Full())
    with pytest.raises(OSError, match="no space"):
        files.write_named(path, "later")
    assert [one.read_text() for one in tmp_path.iterdir()] == ["earlier"]


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, content: object) -> int:
        raise OSError(errno.ENOSPC, "no space")


def test_a_file_of_the_user_keeps_its_permissions(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "page.html"
    files.write_named(path, "one")
    assert mode(path) == 0o640
    path.chmod(0o600)
    files.write_named(path, "two")
    assert (mode(path), path.read_text()) == (0o600, "two")


def test_devices_and_pipes_are_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/null"), Path("/dev/tty")):
        with pytest.raises(UsageError, match="nothing was written"):
            files.write_named(path, "x")
        with pytest.raises(UsageError, match="nothing was written"), files.replacing(path):
            pass
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    with pytest.raises(IsADirectoryError):
        files.write_named(tmp_path, "x")


def test_standard_output_that_is_a_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("w") as file:
        stream = Path(f"/proc/self/fd/{file.fileno()}")
        file.write("said before\n")
        file.flush()
        files.write_named(stream, "shown\n")
        assert stream.is_symlink()
        file.write("said after\n")
    assert path.read_text() == "said before\nshown\nsaid after\n"


def test_a_private_file_is_closed_to_others(tmp_path: Path, umask: None) -> None:
    path = tmp_path / "archive"
    path.write_text("old")
    path.chmod(0o644)
    files.write_named(path, "new", private=True)
    assert (mode(path), path.read_text()) == (0o600, "new")


def left(path: Path, name: str, *content: str) -> Path:
    """A folder beside *path* as a killed process leaves it."""
    folder = path.parent / f".{path.name}.{name}"
    folder.mkdir(mode=0o700)
    for one in content:
        (folder / one).write_text("gigabytes")
    return folder


def test_leftovers_of_a_killed_process_go_and_files_being_written_stay(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    left(path, "abcdefgh", "x.tar")
    left(path, "01_4567z")
    with files.replacing(path) as other, files.replacing(path) as fresh:
        assert {one.name for one in tmp_path.iterdir()} == {other.parent.name, fresh.parent.name}
        files.sweep(path)
        for one in (other, fresh):
            one.write_text(one.parent.name)
    assert [one.name for one in tmp_path.iterdir()] == ["x.tar"]


def test_only_files_made_by_replacing_are_swept(tmp_path: Path) -> None:
    """Others may write to the folder: they can give such a name to a folder of ours, or to a link."""
    path, home = tmp_path / "x.tar", tmp_path / "home"
    home.mkdir()
    (home / "x.tar").write_text("theirs")
    kept = [left(path, "precious", "x.tar", "thesis"), left(path, "short", "x.tar"), left(path, "UPPERCAS", "x.tar")]
    (tmp_path / ".x.tar.linklink").symlink_to(home)
    (tmp_path / ".x.tar.filefile").write_text("a file")
    files.sweep(path)
    assert [sorted(one.name for one in folder.iterdir()) for folder in kept] == [["thesis"], ["x.tar"], ["x.tar"]]
    assert (home / "x.tar").read_text() == "theirs"
    assert (tmp_path / ".x.tar.filefile").exists()
    files.sweep(tmp_path / "none" / "x.tar")  # its folder is missing: the write there says so


def test_files_of_others_are_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left(tmp_path / "x.tar", "abcdefgh", "x.tar")
    monkeypatch.setattr(os, "geteuid", lambda: 1234567)
    files.sweep(tmp_path / "x.tar")
    assert (folder / "x.tar").exists()


def test_a_folder_mistaken_for_a_leftover_is_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its lock another process may sweep."""
    path, real, made = tmp_path / "x.tar", tempfile.mkdtemp, []

    def swept(**options: str) -> str:
        folder = real(**options)
        made.append(folder)
        if len(made) == 1:
            files.sweep(path)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    with files.replacing(path) as fresh:
        fresh.write_text("new")
    assert (len(made), path.read_text()) == (2, "new")


def test_a_file_system_without_locks_is_still_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refused)
    folder = left(tmp_path / "x.tar", "abcdefgh", "x.tar")
    with files.replacing(tmp_path / "x.tar") as fresh:
        fresh.write_text("new")
    assert (tmp_path / "x.tar").read_text() == "new"
    assert folder.exists()


@pytest.mark.parametrize(("content", "expected"), [("é\n", b"\xc3\xa9\n"), (b"\x00\xff", b"\x00\xff"), ("", b"")])
def test_content_is_replaced(tmp_path: Path, content: str | bytes, expected: bytes) -> None:
    path = tmp_path / "file"
    for durable in (False, True):
        files.write_atomic(path, content, durable=durable)
        assert path.read_bytes() == expected
    assert list(tmp_path.iterdir()) == [path]


def test_modes(tmp_path: Path, umask: None) -> None:
    files.write_atomic(tmp_path / "usual", "")
    files.write_atomic(tmp_path / "exact", "", mode=0o644)  # wider than the umask: host facts are for everyone
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


def test_a_link_is_made_and_redirected(tmp_path: Path) -> None:
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
