"""The cache of images: keys, what counts as complete, making, waiting, pruning. A fake builder makes the images."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import threading
import time
import types
from pathlib import Path

import disks
import pytest

from winlab.design.catalog.recipes import Build, BuildRequest, Download, Recipe
from winlab.errors import AccessError, NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.supply.images import cache

CONTENT = disks.qcow2(b" an image")


class FakeBuilder(types.ModuleType):
    """Writes CONTENT; counts its builds; does *trouble* half-way."""

    def __init__(self) -> None:
        super().__init__("fake_builder")
        self.builds = 0
        self.print = "1"
        self.trouble: BaseException | None = None
        self.gate: threading.Event | None = None

    def note(self, recipe: Recipe) -> str:
        raise NotImplementedError

    def fingerprint(self, recipe: Recipe) -> str:
        return self.print

    def build(self, request: BuildRequest) -> None:
        self.builds += 1
        assert list(request.workdir.iterdir()) == []
        assert not request.output.exists()
        (request.workdir / "scratch").write_bytes(b"x")
        request.output.write_bytes(CONTENT[:5])
        if self.gate is not None:
            assert self.gate.wait(10)
        if self.trouble is not None:
            raise self.trouble
        request.output.write_bytes(CONTENT)


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeBuilder:
    """Found as every builder is: by the entry point of an installed package."""
    installed = tmp_path / "site" / "fake-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[winlab.image_builders]\nfake = fake_builder\n")
    monkeypatch.syspath_prepend(installed.parent)
    module = FakeBuilder()
    monkeypatch.setitem(sys.modules, "fake_builder", module)
    return module


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def built(**changes: object) -> Recipe:
    fields: dict[str, object] = {"name": "a", "summary": "s", "os": "linux", "format": "qcow2", "user": "u"}
    fields["build"] = Build(builder="fake", options={"b": 1, "a": [1, 2]})
    return Recipe.model_validate({**fields, **changes})


def published(content: bytes = CONTENT, **changes: object) -> Recipe:
    download = {"url": "https://publisher.example/x/image.img", "sha256": hashlib.sha256(content).hexdigest()}
    return built(build=None, download=Download.model_validate({**download, **changes}))


def test_key_counts_what_decides_the_bytes_and_nothing_else(builder: FakeBuilder) -> None:
    first = cache.key(built())
    assert len(first) == 64
    assert cache.key(built(name="other", summary="other", usual_seconds=1, memory_mib=9)) == first
    assert cache.key(built(build=Build(builder="fake", options={"a": [1, 2], "b": 1}))) == first
    assert cache.key(built(build=Build(builder="fake", options={"a": [2, 1], "b": 1}))) != first
    assert cache.key(built(format="raw")) != first
    builder.print = "2"
    assert cache.key(built()) != first


def test_key_of_a_download_is_its_digest_not_its_address() -> None:
    assert cache.key(published()) == cache.key(published(url="http://elsewhere.example/y"))
    assert cache.key(published()) != cache.key(published(b"other"))


def test_media_of_the_user_have_no_key() -> None:
    recipe = built(build=None, os="windows", format="iso")
    with pytest.raises(UsageError, match="obtained automatically"):
        cache.key(recipe)
    assert cache.lookup(recipe) is None


def test_obtain_builds_once(builder: FakeBuilder, root: Path) -> None:
    assert cache.lookup(built()) is None
    image = cache.obtain(built(), Quiet())
    assert image == cache.obtain(built(), Quiet()) == cache.lookup(built())
    assert builder.builds == 1
    assert image.path == root / "images" / image.key / "image.qcow2"
    assert image.path.read_bytes() == CONTENT
    assert (image.sha256, image.size) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert not image.path.stat().st_mode & 0o222
    assert sorted(path.name for path in image.path.parent.iterdir()) == ["image.qcow2", "manifest.json"]
    assert list((root / "staging").iterdir()) == []


@pytest.mark.parametrize("trouble", [RuntimeError("no"), KeyboardInterrupt()])
def test_a_failed_build_leaves_nothing(builder: FakeBuilder, root: Path, trouble: BaseException) -> None:
    builder.trouble = trouble
    with pytest.raises(type(trouble)):
        cache.obtain(built(), Quiet())
    assert list((root / "staging").iterdir()) == cache.entries() == []
    assert not (root / "images").exists()
    builder.trouble = None
    assert cache.obtain(built(), Quiet()).path.read_bytes() == CONTENT


def test_leftovers_of_a_killed_build_are_swept(builder: FakeBuilder, root: Path) -> None:
    name = cache.key(built())
    for leftover in (root / "staging" / name / "work" / "old", root / "staging" / ("e" * 64) / "image.qcow2"):
        leftover.parent.mkdir(parents=True)
        leftover.write_bytes(b"half")
    assert cache.obtain(built(), Quiet()).path.read_bytes() == CONTENT
    assert list((root / "staging").iterdir()) == []


@pytest.mark.parametrize("damage", ["shorter", "gone", "manifest"])
def test_a_damaged_image_is_made_again(builder: FakeBuilder, damage: str) -> None:
    image = cache.obtain(built(), Quiet())
    manifest = image.path.parent / "manifest.json"
    if damage == "manifest":
        manifest.write_text("{")
    else:
        image.path.unlink()
        if damage == "shorter":
            image.path.write_bytes(CONTENT[:-1])
    assert cache.lookup(built()) is None
    assert cache.entries() == []
    assert cache.obtain(built(), Quiet()).path.read_bytes() == CONTENT
    assert builder.builds == 2


class Told:
    """Keeps the messages, and opens a gate when someone waits."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.said: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append(text)
        if "waiting" in text:
            self.gate.set()


def test_two_at_once_build_once_and_the_second_says_that_it_waits(builder: FakeBuilder) -> None:
    builder.gate = threading.Event()
    told = Told(builder.gate)
    images: list[cache.CachedImage] = []
    first = threading.Thread(target=lambda: images.append(cache.obtain(built(), Quiet())))
    first.start()
    while not builder.builds:
        pass
    images.append(cache.obtain(built(), told))
    first.join(10)
    assert builder.builds == 1
    assert images[0] == images[1]
    assert "another winlab (process" in told.said[0]


def test_prune_keeps_what_is_requested_and_what_is_being_made(builder: FakeBuilder, root: Path) -> None:
    old = cache.obtain(built(), Quiet())
    builder.print = "2"
    kept = cache.obtain(built(), Quiet())
    part = root / "downloads" / f"{'d' * 64}.x.part"
    part.parent.mkdir()
    part.write_bytes(b"x" * 5000)
    builder.print = "3"
    builder.gate = threading.Event()
    running = threading.Thread(target=lambda: cache.obtain(built(), Quiet()))
    running.start()
    while builder.builds < 3:
        pass
    assert cache.prune({kept.key}) >= 5000
    assert not old.path.exists()
    assert not part.exists()
    builder.gate.set()
    running.join(10)
    assert {image.key for image in cache.entries()} == {kept.key, cache.key(built())}


def test_entries_cached_by_earlier_winlabs_are_kept(root: Path) -> None:
    """No one downloads or builds again because winlab was updated."""
    recipe = published()
    folder = root / "images" / cache.key(recipe)
    folder.mkdir(parents=True)
    (folder / "image.qcow2").write_bytes(CONTENT)
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    manifest = {
        **{"recipe": recipe.model_dump(mode="json"), "key": folder.name, "file": "image.qcow2", "sha256": sha256},
        **{"size": len(CONTENT), "origin": "https://publisher.example/x/image.img"},
        **{"made": "2026-11-22T21:24:24Z", "seconds": 61.5, "packages": {"apt": "3.0.3"}},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    image = cache.CachedImage(recipe, folder.name, folder / "image.qcow2", sha256, len(CONTENT))
    assert cache.obtain(recipe, Quiet()) == cache.lookup(recipe) == image
    assert cache.entries() == [image]
    assert cache.manifest(image) == manifest


def test_entries_survive_old_manifests(builder: FakeBuilder) -> None:
    image = cache.obtain(built(), Quiet())
    manifest = image.path.parent / "manifest.json"
    content = json.loads(manifest.read_text())
    content["recipe"]["field_of_old"] = 1
    manifest.write_text(json.dumps(content))
    assert cache.entries() == []
    assert cache.prune(set()) > 0
    assert not image.path.exists()


def test_a_local_copy_is_taken_if_it_is_the_right_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disks.answer(monkeypatch)
    wrong, right = tmp_path / "wrong", tmp_path / "right"
    wrong.write_bytes(b"wrong")
    right.write_bytes(CONTENT)
    with pytest.raises(TransferError, match="not the published image") as caught:
        cache.obtain(published(), Quiet(), source=wrong)
    assert hashlib.sha256(b"wrong").hexdigest() in caught.value.why
    assert hashlib.sha256(CONTENT).hexdigest() in caught.value.why
    with pytest.raises(NotFoundError):
        cache.obtain(published(), Quiet(), source=tmp_path / "none")
    assert cache.entries() == []
    assert cache.obtain(published(), Quiet(), source=right).path.read_bytes() == CONTENT
    assert right.exists()


def test_a_folder_as_mirror_holds_the_file_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = disks.answer(monkeypatch)
    (tmp_path / "image.img").write_bytes(CONTENT)
    assert cache.obtain(published(), Quiet(), mirror=str(tmp_path)).path.read_bytes() == CONTENT
    assert len(asked) == 1


def test_a_published_image_that_names_a_file_of_the_host_is_refused(tmp_path: Path) -> None:
    """Its digest may still be the pinned one."""
    content = disks.qcow2(backing="/etc/shadow")
    (tmp_path / "image.img").write_bytes(content)
    with pytest.raises(UsageError, match="refused"):
        cache.obtain(published(content), Quiet(), mirror=str(tmp_path))
    assert cache.entries() == []


def test_built_images_take_no_local_file(builder: FakeBuilder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="built"):
        cache.obtain(built(), Quiet(), source=tmp_path)


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AccessError, match="can't be used"):
        cache.entries()


def test_a_clock_that_is_set_back_makes_no_negative_time(builder: FakeBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(100, -1)
    monkeypatch.setattr(time, "time", lambda: next(hours) * 3600.0)
    made = cache.obtain(built(), Quiet())
    assert 0 <= cache.manifest(made)["seconds"] < 60


def test_a_cache_that_can_t_be_made_is_reported_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ux D18."""
    cache.require()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(AccessError, match="can't be used"):
        cache.require()
