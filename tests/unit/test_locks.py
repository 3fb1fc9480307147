"""Locks between processes."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from winlab import locks


def test_a_lock_is_held_once_and_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locks.attempt(path) as mine, locks.attempt(path) as other:
        assert mine
        assert not other
        assert path.read_text() == str(os.getpid())
    with locks.attempt(path) as again:
        assert again


def test_a_folder_is_held_until_the_end_even_if_it_goes(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with locks.folder(folder) as mine:
        with locks.folder(folder) as other:
            assert (mine, other) == (True, False)
        with locks.folder(folder) as other:  # the one that was refused has not released it
            assert not other
        folder.rmdir()
    folder.mkdir()
    with locks.folder(folder) as again:
        assert again


def test_a_brief_lock_is_waited_for(tmp_path: Path) -> None:
    path, order = tmp_path / "lock", []

    def second() -> None:
        with locks.briefly(path):
            order.append("second")

    with locks.briefly(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


def test_a_signature_shows_whether_its_process_is_gone() -> None:
    mine = locks.signature()
    host, boot, pid, start = mine.split()
    assert locks.signer(mine) == os.getpid()
    assert not locks.is_gone(mine)
    assert locks.is_gone(f"{host} {boot} {pid} 1")  # another process has its id now
    assert locks.is_gone(f"{host} earlier {pid} {start}")
    assert not locks.is_gone(f"elsewhere {boot} {pid} 1")
    for odd in ("²", "9" * 20, "9" * 5000):
        assert not locks.is_gone(f"{host} {boot} {odd} 1")
        assert locks.signer(f"{host} {boot} {odd} 1") is None
    assert not locks.is_gone("")
    assert not locks.is_gone("not a signature")


def test_a_lock_that_was_removed_meanwhile_protects_nothing(tmp_path: Path) -> None:
    """The second waits for a lock whose holder removes it; the third must not get another lock at the same time."""
    path, order = tmp_path / "lock", []
    second_has_it, third_is_done = threading.Event(), threading.Event()

    def second() -> None:
        with locks.briefly(path):
            second_has_it.set()
            order.append("second")
            third_is_done.wait(5)

    with locks.briefly(path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.2)
        path.unlink()
    assert second_has_it.wait(5)
    with locks.attempt(path) as mine:
        assert not mine
    third_is_done.set()
    thread.join(5)
    with locks.attempt(path) as mine:
        assert mine
    assert order == ["second"]


@pytest.fixture
def full() -> Iterator[None]:
    """No file can be written, as on a full disk: the kernel refuses it with an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_lock_on_a_full_disk_is_held_and_released(tmp_path: Path, full: None) -> None:
    path = tmp_path / "lock"

    def fail() -> None:
        with locks.attempt(path) as mine, locks.attempt(path) as other:
            assert (mine, other) == (True, False)
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):  # not an OSError of the release
        fail()
    assert locks.holder(path) == "?"
    with locks.attempt(path) as again:
        assert again


def test_others_can_not_hold_a_lock_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with locks.attempt(tmp_path / "lock"), locks.briefly(tmp_path / "brief"):
            pass
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
