"""Bundles: they survive a round trip, and altered, truncated or swapped files are refused by name."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import disks
import pytest

from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.catalog.pins import Pins, ProgramPin
from winlab.design.catalog.recipes import Download, Recipe
from winlab.errors import NotFoundError, TransferError, UsageError, WinlabError
from winlab.events import Quiet
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.artifacts.bundle.file import Bundle, open_bundle, verify
from winlab.supply.artifacts.bundle.format import OwnMediaRow
from winlab.supply.artifacts.bundle.source import BundleSource, restore_image
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import layout
from winlab.supply.images import cache

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little") + b"kubelet" * 500
ARM = ELF[:18] + (183).to_bytes(2, "little") + ELF[20:]
PE = b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0\x64\x86" + bytes(100)
KUBELET = Program("kubelet", "v1.36.3", "linux")
KUBELET_EXE = Program("kubelet", "v1.36.3", "windows")
PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")
YAML = Manifest("calico", "v3.32.1", "tigera-operator.yaml")
PACKAGES = {"apt": "3.0.3"}
QCOW2 = disks.qcow2(b"disk" * 1000)
RECIPE = Recipe.model_validate(
    {
        **{"name": "debian-x", "summary": "x", "os": "linux", "format": "qcow2", "user": "debian"},
        "download": {"url": "https://d.example/x.qcow2", "sha256": hashlib.sha256(QCOW2).hexdigest()},
    }
)
OWN = OwnMediaRow(name="windows.iso", sha256="9" * 64, size=5)


def obtained(artifact: Artifact, content: bytes, folder: Path) -> Obtained:
    path = folder / f"{artifact.os if isinstance(artifact, Program) else ''}{artifact.file}"
    path.write_bytes(content)
    return Obtained(artifact, path, hashlib.sha256(content).hexdigest(), len(content), "https://publisher.example")


def archive(image: ContainerImage, folder: Path) -> bytes:
    work = folder / "blobs"
    work.mkdir(exist_ok=True)
    blobs = layout.Blobs(work)

    def add(content: bytes, kind: str) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        blobs.add(digest, content)
        return blobs.descriptor(digest, kind)

    config = json.dumps({"os": image.os, "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}}).encode()
    parts = {"config": add(config, oci.CONFIG), "layers": [add(b"layer", oci.LAYER)]}
    root = add(json.dumps({"schemaVersion": 2, "mediaType": layout.MANIFEST, **parts}).encode(), layout.MANIFEST)
    layout.write(folder / "image.tar", blobs, root, image.reference)
    return (folder / "image.tar").read_bytes()


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    return disks.answer(monkeypatch)


@pytest.fixture
def parts(tmp_path: Path) -> list[Obtained | cache.CachedImage | OwnMediaRow]:
    folder = tmp_path / "parts"
    folder.mkdir()
    disk = folder / "disk.qcow2"
    disk.write_bytes(QCOW2)
    (disk.parent / "manifest.json").write_text(json.dumps({"packages": PACKAGES}))
    return [
        obtained(KUBELET, ELF, folder),
        obtained(KUBELET_EXE, PE, folder),
        obtained(PAUSE, archive(PAUSE, folder), folder),
        obtained(YAML, b"kind: List\n", folder),
        cache.CachedImage(RECIPE, cache.key(RECIPE), disk, hashlib.sha256(QCOW2).hexdigest(), len(QCOW2)),
        OWN,
    ]


@pytest.fixture
def made(parts: list[Any], tmp_path: Path) -> Bundle:
    return bundle.write(tmp_path / "lab.tar", parts, {"spec": "1-1-1"}, Quiet())


def test_a_bundle_survives_a_round_trip(made: Bundle, parts: list[Any]) -> None:
    source = BundleSource(made.path)
    wanted = [KUBELET, KUBELET_EXE, PAUSE, YAML]
    assert source.cannot([*wanted, Program("kubelet", "v2", "linux")]) == {
        Program("kubelet", "v2", "linux"): "it is not in the bundle"
    }
    got = source.obtain_all(wanted, Quiet())
    assert [one.path.read_bytes() for one in got] == [part.path.read_bytes() for part in parts[:4]]
    assert {one.origin for one in got} == {str(made.path)}
    assert got[0].path.stat().st_mode & 0o777 == 0o555
    assert verify(made.path, Quiet()).digest == made.digest
    assert made.contents.inputs == {"spec": "1-1-1"}
    assert made.contents.own_media == (OWN,)
    made.path.unlink()  # members that were extracted once are in the cache
    assert source.obtain(KUBELET, Quiet()).path == got[0].path


def test_leftovers_of_a_killed_bundle_are_removed_first(parts: list[Any], tmp_path: Path) -> None:
    """It may have used all the space."""
    stump = tmp_path / ".lab.tar.abcdefgh"
    stump.mkdir(mode=0o700)
    (stump / "lab.tar").write_bytes(b"x" * 1000)
    asked: list[bool] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bundle, "check_space", lambda *_: asked.append(stump.exists()))
        bundle.write(tmp_path / "lab.tar", parts, {}, Quiet())
    assert asked == [False]
    assert sorted(path.name for path in tmp_path.glob("*lab*")) == ["lab.tar"]


def test_an_image_is_stored_where_the_cache_looks(made: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.lookup(RECIPE) is None
    image = restore_image(made, RECIPE, Quiet())
    assert cache.lookup(RECIPE) == image
    assert image.path.read_bytes() == QCOW2
    assert restore_image(made, RECIPE, Quiet()) == image
    assert cache.manifest(image)["packages"] == PACKAGES
    with pytest.raises(NotFoundError, match="no image with the key") as caught:
        restore_image(made, RECIPE.model_copy(update={"format": "raw"}), Quiet())
    assert "debian-x" in caught.value.why


def test_another_build_of_the_image_in_the_cache_is_replaced(made: Bundle) -> None:
    """A user who gives a bundle means its content."""
    image = restore_image(made, RECIPE, Quiet())
    file = image.path.parent / "manifest.json"
    told = json.loads(file.read_text())
    image.path.chmod(0o644)
    image.path.write_bytes(b"another")
    file.write_text(json.dumps({**told, "sha256": "0" * 64, "size": 7}))
    assert restore_image(made, RECIPE, Quiet()) == image
    assert image.path.read_bytes() == QCOW2


def swapped(made: Bundle, old: bytes, new: bytes) -> Path:
    """The bundle with another file in place of one, and with a list that fits."""

    def point(document: dict[str, Any]) -> None:
        for row in (*document["artifacts"], *document["media"]):
            if row["sha256"] == hashlib.sha256(old).hexdigest():
                row.update(sha256=hashlib.sha256(new).hexdigest(), size=len(new))

    return rewritten(made, point, {old: new})


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_an_image_that_is_not_the_published_one_is_refused(made: Bundle, kind: str) -> None:
    """Its key is the catalog's, and only the bundle verifies its recipe."""
    download = Download.model_validate({"url": "https://d.example/x", kind: hashlib.new(kind, QCOW2).hexdigest()})
    recipe = RECIPE.model_copy(update={"download": download})

    def rename(document: dict[str, Any]) -> None:
        document["media"][0]["key"] = cache.key(recipe)

    good = open_bundle(rewritten(made, rename).rename(made.path))
    bad = open_bundle(swapped(good, QCOW2, QCOW2 + b"!"))
    with pytest.raises(TransferError, match="does not have the published image 'debian-x'"):
        restore_image(bad, recipe, Quiet())
    assert cache.lookup(recipe) is None


def test_a_disk_in_a_bundle_that_names_a_file_of_the_host_is_refused(made: Bundle) -> None:
    hostile = disks.qcow2(backing="/root/.ssh/id_ed25519")
    recipe = RECIPE.model_copy(
        update={"download": Download(url="https://d.example/x", sha256=hashlib.sha256(hostile).hexdigest())}
    )

    def rename(document: dict[str, Any]) -> None:
        document["media"][0]["key"] = cache.key(recipe)

    swapped(made, QCOW2, hostile).rename(made.path)
    with pytest.raises(UsageError, match="is refused"):
        restore_image(open_bundle(rewritten(open_bundle(made.path), rename)), recipe, Quiet())
    assert cache.entries() == []


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_a_program_that_is_not_the_published_one_is_refused(made: Bundle, kind: str) -> None:
    """kubectl and others of a bundle run on the host."""
    mine = ELF + b"mine"
    digest = {kind: hashlib.new(kind, ELF).hexdigest()}
    pin = ProgramPin(name="kubelet", version="v1.36.3", os="linux", url="https://dl.example/kubelet", **digest)
    pins = Pins(programs=(pin,))
    BundleSource(made.path, pins).obtain(KUBELET, Quiet())
    bad = swapped(made, ELF, mine)
    source = BundleSource(bad, pins)
    assert source.without_digest([KUBELET, PAUSE, YAML]) == 2
    if kind == "sha256":
        assert "not the published one" in source.cannot([KUBELET])[KUBELET]
    for _ in range(2):
        with pytest.raises(TransferError, match="has another kubelet"):
            source.obtain(KUBELET, Quiet())
    known = BundleSource(bad, pins, f"sha256:{open_bundle(bad).digest}")
    assert known.cannot([KUBELET]) == {}
    assert known.without_digest([KUBELET, PAUSE]) == 0
    assert known.obtain(KUBELET, Quiet()).path.read_bytes() == mine


def test_a_bundle_with_another_digest(made: Bundle) -> None:
    assert open_bundle(made.path, made.digest).digest == made.digest
    with pytest.raises(TransferError, match="is not the expected bundle") as caught:
        BundleSource(made.path, None, f"sha256:{'0' * 64}")
    assert made.digest in caught.value.why
    with pytest.raises(UsageError, match="is not the digest of a bundle"):
        open_bundle(made.path, "sha256:12")


def test_the_same_members_give_the_same_bytes(made: Bundle, parts: list[Any], tmp_path: Path) -> None:
    again = bundle.write(tmp_path / "again.tar", reversed(parts), {"spec": "1-1-1"}, Quiet())
    assert again.path.read_bytes() == made.path.read_bytes()
    other = bundle.write(tmp_path / "other.tar", parts[1:], {"spec": "1-1-1"}, Quiet())
    assert other.digest != made.digest


def test_tar_itself_reads_it(made: Bundle) -> None:
    with tarfile.open(made.path) as tar:
        names = tar.getnames()
        assert names[0] == "bundle.json"
        assert len(names) == 6
        for member in tar.getmembers()[1:]:
            file = tar.extractfile(member)
            assert file is not None
            assert member.name == "files/" + hashlib.sha256(file.read()).hexdigest()


def test_equal_files_are_stored_once(tmp_path: Path) -> None:
    rows = [obtained(Manifest("p", "v1", name), b"same", tmp_path) for name in ("a.yaml", "b.yaml")]
    made = bundle.write(tmp_path / "lab.tar", rows, {}, Quiet())
    with tarfile.open(made.path) as tar:
        assert len(tar.getnames()) == 2
    assert [one.path.name for one in BundleSource(made.path).obtain_all([row.artifact for row in rows], Quiet())] == [
        "p-v1-a.yaml",
        "p-v1-b.yaml",
    ]


def test_an_empty_bundle_is_a_bundle(tmp_path: Path) -> None:
    assert verify(bundle.write(tmp_path / "lab.tar", [], {}, Quiet()).path, Quiet()).contents.artifacts == ()


@pytest.mark.parametrize(
    ("content", "words"), [(ELF[:-1] + b"!", "has changed"), (ELF + b"more", "has changed"), (ELF[:-5], "has changed")]
)
def test_files_that_changed_in_the_cache_are_not_bundled(tmp_path: Path, content: bytes, words: str) -> None:
    one = obtained(KUBELET, ELF, tmp_path)
    one.path.write_bytes(content)
    with pytest.raises(TransferError, match=words) as caught:
        bundle.write(tmp_path / "lab.tar", [one], {}, Quiet())
    assert str(KUBELET) in caught.value.what
    assert not list(tmp_path.glob("lab.tar*"))


def test_programs_of_another_machine_are_not_bundled(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=r"wrong kubelet v1\.36\.3 \(linux\)") as caught:
        bundle.write(tmp_path / "lab.tar", [obtained(KUBELET, ARM, tmp_path)], {}, Quiet())
    assert "arm64" in caught.value.why


def test_a_failure_leaves_the_old_bundle(made: Bundle, tmp_path: Path) -> None:
    before = made.path.read_bytes()
    with pytest.raises(TransferError):
        bundle.write(made.path, [obtained(KUBELET, ARM, tmp_path)], {}, Quiet())
    assert made.path.read_bytes() == before


def test_every_truncation_is_noticed_at_once(made: Bundle) -> None:
    content = made.path.read_bytes()
    for size in [0, 1, 511, 512, 600, 1024, *range(2048, len(content), 1500), len(content) - 512, len(content) - 1]:
        made.path.write_bytes(content[:size])
        with pytest.raises(WinlabError) as caught:
            open_bundle(made.path)
        assert str(made.path) in caught.value.what
        assert isinstance(caught.value, TransferError | UsageError)


def test_appended_bytes_are_noticed(made: Bundle) -> None:
    made.path.write_bytes(made.path.read_bytes() + bytes(10240))
    with pytest.raises(TransferError, match="damaged"):
        open_bundle(made.path)


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_an_altered_byte_is_refused_by_name(made: Bundle, parts: list[Any], number: int) -> None:
    part = parts[number]
    row = made.row(part.artifact)
    assert row is not None
    content = bytearray(made.path.read_bytes())
    content[made.offsets[row.member] + row.size // 2] ^= 1
    made.path.write_bytes(content)
    source = BundleSource(made.path)
    with pytest.raises(TransferError, match="damaged") as caught:
        source.obtain(part.artifact, Quiet())
    assert str(part.artifact) in caught.value.what
    with pytest.raises(TransferError, match="damaged"):
        verify(made.path, Quiet())
    for other in parts[:4]:
        if other is not part:
            source.obtain(other.artifact, Quiet())


def test_an_altered_disk_is_refused(made: Bundle) -> None:
    row = made.image(cache.key(RECIPE))
    assert row is not None
    content = bytearray(made.path.read_bytes())
    content[made.offsets[row.member]] ^= 1
    made.path.write_bytes(content)
    with pytest.raises(TransferError, match="image 'debian-x' does not match its row"):
        restore_image(made, RECIPE, Quiet())
    assert cache.lookup(RECIPE) is None

    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(b"mine")
        return hashlib.sha256(b"mine").hexdigest(), "made here"

    mine = cache.keep(RECIPE, cache.key(RECIPE), fill, Quiet())
    with pytest.raises(TransferError):
        restore_image(made, RECIPE, Quiet())
    assert cache.lookup(RECIPE) == mine  # it is replaced only by a complete one
    assert mine.path.read_bytes() == b"mine"


def test_a_bundle_s_image_takes_the_place_of_another_build(made: Bundle) -> None:
    def fill(output: Path) -> tuple[str, str]:
        output.write_bytes(b"mine")
        return hashlib.sha256(b"mine").hexdigest(), "made here"

    cache.keep(RECIPE, cache.key(RECIPE), fill, Quiet())
    assert restore_image(made, RECIPE, Quiet()).path.read_bytes() == QCOW2


def rewritten(made: Bundle, change: Callable[[dict[str, Any]], None], swap: dict[bytes, bytes] | None = None) -> Path:
    """The bundle with another list and other files, as anyone who knows the format could make it."""
    target = made.path.with_name("rewritten.tar")
    with tarfile.open(made.path) as tar, tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as out:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name == "bundle.json":
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
            elif swap and content in swap:
                content = swap[content]
                member.name = "files/" + hashlib.sha256(content).hexdigest()
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
    return target


def test_a_well_made_bundle_with_the_wrong_things_in_it(made: Bundle) -> None:
    def point(document: dict[str, Any]) -> None:
        for row in document["artifacts"]:
            if row["kind"] == "program" and row["os"] == "linux":
                row["sha256"] = hashlib.sha256(ARM).hexdigest()
            if row["kind"] == "image":
                row["reference"] = "registry.k8s.io/other:1"

    path = rewritten(made, point, {ELF: ARM})
    source = BundleSource(path)
    with pytest.raises(TransferError, match=r"wrong kubelet v1\.36\.3 \(linux\)"):
        source.obtain(KUBELET, Quiet())
    with pytest.raises(TransferError, match=r"registry\.k8s\.io/other:1"):
        source.obtain(ContainerImage("registry.k8s.io/other:1", "linux"), Quiet())
    with pytest.raises(TransferError):
        verify(path, Quiet())


def _name(value: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        next(row for row in document["artifacts"] if row["kind"] == "program")["name"] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: document.update(format=2), "format that this winlab does not know: 2"),
        (lambda document: document.pop("format"), None),
        (lambda document: document.update(more=1), "can't be used"),
        (lambda document: document["artifacts"].pop(), "damaged"),
        (lambda document: document["artifacts"].append(document["artifacts"][0]), "listed twice"),
        (lambda document: document["artifacts"][0].update(size=7), "damaged"),
        (lambda document: document["artifacts"][0].update(sha256="0" * 64), "not at its expected place"),
        (lambda document: document["artifacts"].reverse(), "not at its expected place"),
        (_name("../../etc/cron.d/x"), "can't be used"),
        (_name("a/b"), "can't be used"),
    ],
)
def test_a_false_list_is_refused(made: Bundle, change: Callable[[dict[str, Any]], None], words: str | None) -> None:
    path = rewritten(made, change)
    if words is None:  # the version of the format may be left out: 1 is the first
        open_bundle(path)
        return
    with pytest.raises(WinlabError) as caught:
        open_bundle(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(600)])
def test_files_that_are_not_bundles(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a winlab bundle"):
        open_bundle(path)


def test_another_tar_is_not_a_bundle(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("other"))
    with pytest.raises(UsageError, match="does not begin with"):
        open_bundle(tmp_path / "x.tar")
    with pytest.raises(NotFoundError, match="no bundle"):
        open_bundle(tmp_path / "missing.tar")


def test_the_catalogs_recipes_fit_in(tmp_path: Path) -> None:
    """Every recipe of the catalog survives the way through a bundle's list."""
    disk = tmp_path / "disk"
    disk.write_bytes(b"disk")
    (tmp_path / "manifest.json").write_text("{}")
    digest = hashlib.sha256(b"disk").hexdigest()
    images = [
        cache.CachedImage(recipes.get(name), f"{number:064x}", disk, digest, 4)
        for number, name in enumerate(recipes.names())
    ]
    made = bundle.write(tmp_path / "lab.tar", images, {}, Quiet())
    assert {row.recipe.name: row.recipe for row in made.contents.media} == {
        image.recipe.name: image.recipe for image in images
    }
