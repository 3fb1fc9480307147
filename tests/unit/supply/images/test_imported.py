"""Images from another machine: what winlab computes itself decides, not what the file says."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import disks
import pytest
from clones import REHEARSAL, keep, make
from isos import make_server_medium

from winlab import files
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Download, Recipe
from winlab.errors import ConflictError, HostError, TransferError, UsageError, WinlabError
from winlab.events import Quiet
from winlab.operations import lock_file, lock_inputs
from winlab.supplies import Supplies
from winlab.supply import tars
from winlab.supply.images import cache, golden, imported, library, windows_media

DISK = disks.qcow2(b"content")


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    return disks.answer(monkeypatch)


def packed(path: Path, content: bytes, name: str, key: str, **changes: Any) -> Path:
    """A file such as 'image export' writes, with claims that may be false."""
    recipe = recipes.get(name)
    manifest = {
        "file": f"image.{recipe.format}",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "origin": "https://publisher.example",
        "made": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "recipe": recipe.model_dump(mode="json"),
        "key": key,
        **changes,
    }
    with tarfile.open(path, "w") as archive:
        for one, text in (("manifest.json", json.dumps(manifest).encode()), (str(manifest["file"]), content)):
            row = tarfile.TarInfo(one)
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text))
    return path


def bring(path: Path) -> library.Item:
    return library.bring(path, Quiet())


def test_pinned_images_have_the_digest_of_the_catalog(tmp_path: Path) -> None:
    """The reviewer's own: 516 bytes became the published drivers."""
    for name in ("virtio-win", "ubuntu-24.04"):
        recipe = recipes.get(name)
        assert recipe.download is not None
        content = DISK if recipe.format == "qcow2" else b"mine"
        with pytest.raises(TransferError, match="published image") as caught:
            bring(packed(tmp_path / "x.tar", content, name, cache.key(recipe)))
        assert str(recipe.download.sha256 or recipe.download.sha512) in caught.value.why
        assert cache.lookup(recipe) is None


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_pinned_images_do_not_count_as_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    digest = {kind: hashlib.new(kind, DISK).hexdigest()}
    download = Download.model_validate({"url": "https://publisher.example/x", **digest})
    recipe = recipes.get("ubuntu-24.04").model_copy(update={"download": download})
    monkeypatch.setattr(recipes, "get", lambda _: recipe)
    brought = bring(packed(tmp_path / "x.tar", DISK, "ubuntu-24.04", cache.key(recipe)))
    assert cache.lookup(recipe) == brought.image
    assert (brought.imported, brought.state) == ("", "")


def test_drivers_of_the_user_do_not_replace_the_published_ones(tmp_path: Path) -> None:
    key = windows_media.key(hashlib.sha256(b"mine").hexdigest())
    with pytest.raises(UsageError, match="is not 'virtio-win' of this winlab") as caught:
        bring(packed(tmp_path / "x.tar", b"mine", "virtio-win", key))
    assert "image add" in caught.value.cure
    assert windows_media.drivers() != hashlib.sha256(b"mine").hexdigest()


def test_a_built_image_says_that_it_was_imported(tmp_path: Path) -> None:
    """Its key is a digest of inputs; only its builder knows its content."""
    recipe = recipes.get("debian-13")
    file = packed(tmp_path / "x.tar", DISK, "debian-13", cache.key(recipe), packages={"apt": "3.0.3"})
    brought = bring(file)
    assert cache.lookup(recipe) == brought.image
    assert brought.imported == str(file)
    assert brought.state == "imported"
    assert brought.manifest["packages"] == {"apt": "3.0.3"}
    assert library.imported_for(make(REHEARSAL)) == [brought]
    other = packed(tmp_path / "y.tar", DISK + b"more", "debian-13", cache.key(recipe))
    with pytest.raises(ConflictError, match="already has another"):
        bring(other)


@pytest.mark.parametrize("key", ["f" * 64, hashlib.sha256(b"x").hexdigest()])
@pytest.mark.parametrize("name", ["debian-13", "windows-2022", "virtio-win"])
def test_a_key_that_winlab_would_not_give_is_refused(tmp_path: Path, name: str, key: str) -> None:
    with pytest.raises(UsageError, match="is not '"):
        bring(packed(tmp_path / "x.tar", DISK, name, key))
    assert cache.entries() == []


def test_a_recipe_inside_the_file_is_not_used(tmp_path: Path) -> None:
    """It could pin the digest of whatever is in the file."""
    mine = Recipe.model_validate({"name": "mine", "summary": "x", "os": "linux", "format": "qcow2"})
    file = packed(tmp_path / "x.tar", DISK, "debian-13", "0" * 64, recipe=mine.model_dump(mode="json"))
    with pytest.raises(UsageError, match="has no image 'mine'"):
        bring(file)


def test_a_medium_has_the_key_of_its_bytes_and_is_one(tmp_path: Path) -> None:
    medium = make_server_medium(tmp_path / "w.iso").read_bytes()
    key = windows_media.key(hashlib.sha256(medium).hexdigest())
    with pytest.raises(UsageError, match="Windows Server 2022, not 2019"):
        bring(packed(tmp_path / "x.tar", medium, "windows-2019", key))
    brought = bring(packed(tmp_path / "x.tar", medium, "windows-2022", key))
    assert brought.state == "imported"
    assert windows_media.find(recipes.get("windows-2022")) == brought.image


def test_a_golden_image_has_the_key_of_its_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = keep(make(REHEARSAL))
    facts, about = made.facts, cache.manifest(made.image)
    content = made.path.read_bytes()
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "other"))

    def export(**changes: Any) -> Path:
        more = {"file": "image.qcow2", "golden": {**facts, **changes}}
        return packed(tmp_path / "x.tar", content, "windows-rehearsal", about["key"], **more)

    other = {**facts["inputs"], "machine": ["bios", "sata", "e1000", 1]}
    with pytest.raises(UsageError, match="not the one that it claims to be"):
        bring(export(inputs=other))
    with pytest.raises(UsageError, match="is not 'windows-rehearsal'"):
        bring(export(inputs=other, key=imported._golden_key(imported._GoldenFacts(**{**facts, "inputs": other}))))
    with pytest.raises(UsageError, match="not the one that it claims to be"):
        bring(export(key="0" * 16))  # plans look for this one
    for ends in ("never", "2026-99-99T00:00:00+00:00", "٢٠٢٦-٠١-٠١T٠٠:٠٠:٠٠+00:00"):
        with pytest.raises(UsageError, match="not an image that winlab exported"):
            bring(export(evaluation_ends=ends))
    brought = bring(export())
    assert brought.golden is not None
    assert brought.golden.key == made.key
    assert brought.imported
    assert library.imported_for(make(REHEARSAL)) == [brought]
    manifest = brought.golden.path.parent / "manifest.json"
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**about, "golden": {**about["golden"], "key": "0" * 16}}))
    assert golden.find("0" * 16) is None, "an earlier winlab took in what calls itself so"


def test_no_more_is_copied_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.key(recipes.get("debian-13"))
    file = packed(tmp_path / "x.tar", DISK, "debian-13", key)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=len(DISK) - 1))
    with pytest.raises(HostError, match="not enough space"):
        bring(file)


@pytest.mark.parametrize(
    "changes",
    [{"size": 1}, {"size": 10**15}, {"file": "../../x"}, {"seconds": "inf"}, {"made": "\x1b[2J"}, {"sha256": "x"}],
)
def test_a_false_manifest_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    key = cache.key(recipes.get("debian-13"))
    with pytest.raises(UsageError):
        bring(packed(tmp_path / "x.tar", DISK, "debian-13", key, **changes))
    assert cache.entries() == []


def test_an_archive_can_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = cache.key(recipes.get("debian-13"))
    file = packed(tmp_path / "x.tar", DISK, "debian-13", key)
    zipped = tmp_path / "x.tar.gz"
    zipped.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(UsageError, match="not an image that winlab exported"):
        bring(zipped)  # 'image export' compresses nothing, and a few bytes could be gigabytes
    monkeypatch.setattr(imported, "LARGEST_MANIFEST", 100)
    with pytest.raises(UsageError, match="not an image that winlab exported"):
        bring(file)
    monkeypatch.undo()
    monkeypatch.setattr(tars, "LARGEST_READ", 1 << 10)
    with tarfile.open(file, "w") as archive:
        archive.addfile(tarfile.TarInfo("x" * 2000))
    with pytest.raises(UsageError) as caught:
        bring(file)
    assert "header" in caught.value.why


def test_a_disk_that_names_a_file_of_the_host_is_refused(tmp_path: Path) -> None:
    key, secret = cache.key(recipes.get("debian-13")), "/root/.ssh/id_ed25519"
    with pytest.raises(WinlabError, match="is refused") as caught:
        bring(packed(tmp_path / "x.tar", disks.qcow2(backing=secret), "debian-13", key))
    assert "backing file" in caught.value.why
    assert cache.entries() == []


def test_an_image_that_has_changed_in_the_cache_is_named(tmp_path: Path) -> None:
    """By its size it is whole; 'winlab image verify' reads it."""
    brought = bring(packed(tmp_path / "x.tar", DISK, "debian-13", cache.key(recipes.get("debian-13"))))
    supplies = Supplies()
    assert supplies.verify_images() == supplies.verify_images("debian-13") == [brought]
    brought.image.path.chmod(0o644)
    brought.image.path.write_bytes(DISK[:-1] + b"!")
    assert cache.lookup(recipes.get("debian-13")) == brought.image
    with pytest.raises(TransferError, match="'debian-13' in the cache has changed") as caught:
        supplies.verify_images()
    assert "winlab image rm" in caught.value.cure
    with pytest.raises(TransferError):
        cache.verify_file(brought.image.path, Quiet())
    cache.verify_file(tmp_path / "x.tar", Quiet())  # a file of the user's own
    with pytest.raises(TransferError, match="has changed"):
        cache.comparing(brought.image.path)(files.sha256(brought.image.path))  # as it goes into the pool
    cache.comparing(brought.image.path)(brought.image.sha256)
    cache.comparing(tmp_path / "x.tar")("0" * 64)


def test_an_image_that_has_changed_in_the_cache_is_not_silently_imported_again(tmp_path: Path) -> None:
    file = packed(tmp_path / "x.tar", DISK, "debian-13", cache.key(recipes.get("debian-13")))
    brought = bring(file)
    brought.image.path.chmod(0o644)
    brought.image.path.write_bytes(DISK[:-1] + b"!")
    with pytest.raises(TransferError, match="'debian-13' in the cache has changed"):
        bring(file)


def test_a_disk_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Machines get a disk of its size, whatever their spec says."""
    key = cache.key(recipes.get("debian-13"))
    for mib, fits in ((20 * 1024, True), (20 * 1024 + 1, False), (64 << 20, False)):
        disk = DISK[:24] + struct.pack(">Q", mib << 20) + DISK[32:]
        file = packed(tmp_path / "x.tar", disk, "debian-13", key)
        if fits:
            cache.remove(bring(file).image.key)
            continue
        with pytest.raises(UsageError, match=f"has a disk of {mib:,} MiB"):
            bring(file)
        assert cache.entries() == []


def test_a_lock_pins_a_golden_image(tmp_path: Path) -> None:
    plan = make(REHEARSAL)
    before = lock_file.collect(plan, [], golden=lock_inputs.golden(plan))
    assert [(row.name, row.sha256) for row in before.golden] == [("windows-rehearsal", None)]
    made = keep(plan)
    locked = lock_file.collect(plan, [], golden=lock_inputs.golden(plan))
    assert [(row.key, row.sha256) for row in locked.golden] == [(made.key, made.image.sha256)]
    assert lock_file.compare(before, locked) == []  # it was made since
    lock_file.write(tmp_path / "winlab.lock", locked)
    assert lock_file.read(tmp_path / "winlab.lock") == locked
    cache.remove(made.image.key)
    keep(plan, build="20348.1")
    about = cache._store().root / "images" / made.image.key / "manifest.json"
    about.write_text(about.read_text().replace(made.image.sha256, "0" * 64))
    (drift,) = lock_file.compare(locked, lock_file.collect(plan, [], golden=lock_inputs.golden(plan)))
    assert drift.startswith(f"The golden image {made.key} of windows-rehearsal has the SHA-256 {'0' * 64}")
