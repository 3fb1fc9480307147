"""The store under both caches: what is complete, kills at any moment, waiting, leftovers, removal, wrong keys."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from waiting import waits

from winlab import files, locks
from winlab.errors import AccessError, HostError, UsageError
from winlab.events import Quiet
from winlab.supply import store
from winlab.supply.store import Store

KEY, OTHER = "a" * 64, "b" * 64
CONTENT = b"the whole content"
Item = tuple[str, Path, str]


def read(key: str, file: Path, manifest: dict[str, Any]) -> Item:
    return key, file, str(manifest["origin"])


def opened(root: Path) -> Store[Item]:
    return Store(root, "finished", read)


@pytest.fixture
def kept(tmp_path: Path) -> Store[Item]:
    return opened(tmp_path / "store")


def make(kept: Store[Item], key: str = KEY, origin: str = "first", name: str | None = None) -> Item:
    with kept.workspace(name) as work:
        file = work / "new" / "file"
        file.parent.mkdir()
        file.write_bytes(CONTENT)
        return kept.publish(key, file, "the digest", origin, 1.5, {"about": 1})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_key_depends_on_all_inputs_and_not_on_their_order() -> None:
    assert store.key({"a": 1, "b": ["x"]}) == store.key({"b": ["x"], "a": 1})
    assert store.key({"a": 1}) != store.key({"a": "1"})
    assert len(store.key({})) == 64


def test_published_entries_are_found_again_and_read_only(kept: Store[Item]) -> None:
    assert kept.lookup(KEY) is None
    item = make(kept)
    assert item == kept.lookup(KEY) == (KEY, kept.root / "finished" / KEY / "file", "first")
    assert kept.entries() == [item]
    assert item[1].read_bytes() == CONTENT
    assert item[1].stat().st_mode & 0o777 == 0o444
    manifest = json.loads((item[1].parent / "manifest.json").read_text())
    assert manifest.pop("made").endswith("Z")
    assert manifest == {
        **{"file": "file", "sha256": "the digest", "size": len(CONTENT), "origin": "first", "seconds": 1.5},
        "about": 1,
    }
    assert names(kept.root / "staging") == []


def test_items_are_sorted_by_when_they_were_made(kept: Store[Item]) -> None:
    """Not by their folders' times: a copy or a backup of the cache has others."""
    for key, origin, made, touched in ((KEY, "old", "2026-01-01T00:00:00Z", 2e9), (OTHER, "new", "2026-01-02", 1e9)):
        manifest = make(kept, key, origin)[1].with_name("manifest.json")
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "made": made}))
        os.utime(manifest.parent, (touched, touched))
    assert [origin for _, _, origin in kept.entries()] == ["old", "new"]


def test_of_items_of_one_second_the_oldest_folder_comes_first(kept: Store[Item]) -> None:
    for key, origin, touched in ((KEY, "new", 2e9), (OTHER, "old", 1e9)):
        manifest = make(kept, key, origin)[1].with_name("manifest.json")
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "made": "2026-01-01T00:00:00Z"}))
        os.utime(manifest.parent, (touched, touched))
    assert [origin for _, _, origin in kept.entries()] == ["old", "new"]


def test_the_first_one_wins(kept: Store[Item]) -> None:
    assert make(kept) == make(kept, origin="second")


@pytest.mark.parametrize("damage", ["shorter", "gone", "no manifest", "", "[]", "{}", '{"file": "file", "size": 17}'])
def test_incomplete_entries_count_as_missing_and_are_replaced(kept: Store[Item], damage: str) -> None:
    """The last manifest goes with its file, but lacks what *read* needs."""
    _, file, _ = make(kept)
    if damage in ("shorter", "gone"):
        file.unlink()
        if damage == "shorter":
            file.write_bytes(CONTENT[:-1])
    elif damage == "no manifest":
        (file.parent / "manifest.json").unlink()
    else:
        (file.parent / "manifest.json").write_text(damage)
    assert kept.lookup(KEY) is None
    assert kept.entries() == []
    assert make(kept, origin="second")[2] == "second"
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize("name", [None, KEY])
def test_a_kill_at_any_moment_leaves_nothing_or_a_whole_entry(
    kept: Store[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """A copy of the store is what a process killed at that moment leaves: the files, and no locks."""
    moments: list[Path] = []

    def sync(path: Path) -> None:
        moments.append(tmp_path / f"moment-{len(moments)}")
        shutil.copytree(kept.root, moments[-1])

    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", sync)
        make(kept, name=name)
    found = []
    for moment in moments:
        after = opened(moment)
        assert names(moment / "staging") != []
        found.append(after.lookup(KEY) is not None)
        assert make(after, name=name)[1].read_bytes() == CONTENT
        assert names(moment / "staging") == []
    assert found == [False, False, False, True]  # file, manifest, their folder, and after the rename


def test_a_workspace_is_gone_afterwards_even_with_read_only_folders(kept: Store[Item]) -> None:
    with kept.workspace() as work:
        (work / "mod").mkdir()
        (work / "mod" / "x.go").write_text("x")
        (work / "mod").chmod(0o555)
    assert names(kept.root / "staging") == []


def test_a_workspace_with_a_name_begins_empty(kept: Store[Item]) -> None:
    left = kept.root / "staging" / KEY / "work" / "old"
    left.parent.mkdir(parents=True)
    left.write_text("half")
    with kept.workspace(KEY) as work:
        assert work == kept.root / "staging" / KEY
        assert names(work) == []


def test_leftovers_of_a_killed_winlab_are_swept_and_nothing_else(kept: Store[Item]) -> None:
    with kept.workspace() as alive, kept.workspace(KEY) as named:
        (alive / "x").write_text("x")
        for name in ("dead", OTHER):  # no one holds their locks
            (kept.root / "staging" / name).mkdir()
            (kept.root / "staging" / name / "y").write_text("y")
        with kept.workspace() as work:
            assert names(kept.root / "staging") == sorted([alive.name, named.name, work.name])
        assert (alive / "x").exists()


def test_the_work_of_an_older_winlab_is_not_a_leftover(kept: Store[Item]) -> None:
    """It holds the lock of the key alone, not the folder."""
    (kept.root / "staging" / KEY).mkdir(parents=True)
    with kept.locked(KEY, Quiet(), "x"):
        kept.sweep()
        assert names(kept.root / "staging") == [KEY]
    kept.sweep()
    assert names(kept.root / "staging") == []


def test_a_leftover_that_can_t_be_removed_does_not_stop_winlab(
    kept: Store[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = kept.root / "staging" / "stuck"
    stuck.mkdir(parents=True)
    true = shutil.rmtree

    def rmtree(path: Path) -> None:
        if path == stuck:
            raise PermissionError(errno.EPERM, "not yours")
        true(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    make(kept)
    assert names(kept.root / "staging") == ["stuck"]


def test_removal_waits_for_programs_that_clean_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").mkdir()
    true, tries = shutil.rmtree, [errno.ENOTEMPTY, errno.ENOENT]

    def rmtree(path: Path) -> None:
        if tries:
            raise OSError(tries.pop(), "somebody is at work here")
        true(path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    store.remove(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_removal_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o555)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    store.remove(tmp_path / "link")
    assert names(tmp_path) == ["mine"]
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o555


def test_nothing_is_removed_through_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that ends unmounts by itself; what is still mounted after some patience is unmounted."""
    mounts, unmounted = [str(tmp_path / "x/proc")], list[object]()
    (tmp_path / "x" / "proc").mkdir(parents=True)

    def run(command: list[str]) -> None:
        assert (tmp_path / "x" / "proc").exists()
        unmounted.append(command)
        mounts.clear()

    monkeypatch.setattr(store, "_PATIENCE", 0.3)
    monkeypatch.setattr(store, "mounted_under", lambda folder, table: list(mounts))
    monkeypatch.setattr(store, "run", run)
    store.remove(tmp_path / "x")
    assert unmounted == [["umount", str(tmp_path / "x/proc")]]
    assert not (tmp_path / "x").exists()


def test_mounts_under_a_folder_innermost_first(tmp_path: Path) -> None:
    table = (
        "/dev/vda / ext4 rw 0 0\n"
        f"proc {tmp_path}/my\\040root/proc proc rw 0 0\n"
        f"x {tmp_path}2/y tmpfs rw 0 0\n"
        f"binfmt {tmp_path}/my\\040root/proc/sys binfmt rw 0 0\n"
    )
    assert store.mounted_under(tmp_path, table) == [f"{tmp_path}/my root/proc/sys", f"{tmp_path}/my root/proc"]


def test_an_entry_that_is_being_made_is_not_removed(kept: Store[Item]) -> None:
    make(kept)
    with kept.locked(KEY, Quiet(), "x"):
        assert kept.remove(KEY) is None
    assert kept.lookup(KEY) is not None
    assert (kept.remove(KEY) or 0) > 0
    assert kept.remove(KEY) == 0
    assert kept.entries() == []


def test_prune_keeps_what_is_named_and_what_is_in_use(kept: Store[Item]) -> None:
    item, busy = make(kept), "c" * 64
    make(kept, OTHER)
    make(kept, busy)
    for key in (KEY, OTHER, busy):
        kept.unfinished(key, "x.tgz").write_bytes(b"half")
    with kept.locked(busy, Quiet(), "x"):
        assert kept.prune({KEY}) > 0
    assert names(kept.root / "finished") == [KEY, busy]
    assert names(kept.root / "downloads") == [f"{busy}.x.tgz.part"]
    assert kept.lookup(KEY) == item


def test_a_wait_for_a_lock_says_what_it_waits_for(kept: Store[Item]) -> None:
    said = waits(lambda progress: kept.locked(KEY, progress, "making this"))
    assert f"another winlab (process {os.getpid()}) is making this" in said


def test_a_lock_is_free_when_its_holder_is_gone(kept: Store[Item]) -> None:
    lock = kept.folder("locks") / f"{KEY}.lock"
    lock.write_text("1")  # left by a process that was killed
    with kept.locked(KEY, Quiet(), "x"), lock.open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with locks.attempt(lock) as mine:
        assert mine


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_as_such(kept: Store[Item], monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def sync(path: Path) -> None:
        raise OSError(number, "full")

    monkeypatch.setattr(files, "sync", sync)
    with pytest.raises(HostError, match="no space left for 'file'"):
        make(kept)
    assert names(kept.root / "staging") == []
    assert kept.entries() == []


def test_a_store_that_can_t_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AccessError, match="can't be used"):
        opened(tmp_path / "file" / "store").entries()


def test_reading_makes_no_folder(tmp_path: Path) -> None:
    """ux D18: 'plan' needs no cache."""
    store_ = opened(tmp_path / "new")
    assert store_.entries() == []
    assert store_.lookup("a") is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["", ".", "..", "../../x", "/x", "a/b", "a\n"])
def test_a_key_does_not_lead_out_of_the_store(kept: Store[Item], key: str) -> None:
    """It may come from another user's file."""
    for act in (kept.lookup, kept.remove, lambda key: make(kept, key), lambda key: kept.unfinished(key, "x")):
        with pytest.raises(UsageError, match="not a key"):
            act(key)
    with pytest.raises(UsageError, match="not a key"), kept.locked(key, Quiet(), "x"):
        pass
    with pytest.raises(UsageError, match="not a key"), kept.workspace(key):
        pass


def test_only_the_owner_can_read_the_cache(tmp_path: Path) -> None:
    """Golden images have users' files and an activated key in them."""
    (tmp_path / "theirs").mkdir(mode=0o755)
    store_ = opened(tmp_path / "theirs/new/cache")
    (tmp_path / "theirs/new/cache/finished").mkdir(parents=True)
    (tmp_path / "theirs/new").chmod(0o755)
    make(store_)
    for folder in ("finished", "staging", "locks"):
        assert (store_.root / folder).stat().st_mode & 0o777 == 0o700  # one of an earlier winlab is closed
    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o755
    assert opened(tmp_path / "a/b").folder("x").parent.stat().st_mode & 0o777 == 0o700
