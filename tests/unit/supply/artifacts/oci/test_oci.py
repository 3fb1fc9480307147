"""Archives of container images: written the same each time, read back, and refused when something is wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from winlab.design.catalog.artifact import ContainerImage
from winlab.errors import TransferError, UsageError
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci import write
from winlab.supply.artifacts.oci.write import Config, Folder, LayerFile

PAUSE = ContainerImage("registry.k8s.io/pause:3.10.2", "linux")
ITEMS = [LayerFile("/usr/bin/pause", b"\x7fELF..."), Folder("/tmp", 0o1777), LayerFile("/bin", link="usr/bin")]
Files = dict[str, bytes]


@pytest.fixture
def work(tmp_path: Path) -> Callable[[], Path]:
    """Gives an empty folder at every call."""
    made: list[Path] = []

    def folder() -> Path:
        made.append(tmp_path / f"work{len(made)}")
        made[-1].mkdir()
        return made[-1]

    return folder


@pytest.fixture
def archive(tmp_path: Path, work: Callable[[], Path]) -> Path:
    path = tmp_path / "pause.tar"
    config = Config(entrypoint=("/usr/bin/pause",), cmd=("x",), user="65535:65535")
    write.write(path, PAUSE.reference, ITEMS, config, work=work())
    return path


def read(path: Path) -> Files:
    with tarfile.open(path) as tar:
        return {m.name: (f.read() if (f := tar.extractfile(m)) else b"") for m in tar}


def pack(path: Path, files: Files, links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return path


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def put(files: Files, document: Any) -> dict[str, Any]:
    """Add a document as a blob; its digest and size."""
    content = json.dumps(document).encode()
    files[f"blobs/sha256/{sha(content)}"] = content
    return {"digest": f"sha256:{sha(content)}", "size": len(content)}


def docker(tmp_path: Path, tags: list[str] | None, os: str = "linux", layer: bytes = b"layer") -> Path:
    config = {"architecture": "amd64", "os": os, "rootfs": {"type": "layers", "diff_ids": ["sha256:1", "sha256:2"]}}
    content = json.dumps(config).encode()
    names = ["a/layer.tar", "b/layer.tar"]  # the second is a link to the first, as old Docker wrote equal layers
    manifest = [{"Config": f"{sha(content)}.json", "RepoTags": tags, "Layers": names}]
    files = {f"{sha(content)}.json": content, "a/layer.tar": layer, "manifest.json": json.dumps(manifest).encode()}
    return pack(tmp_path / "saved.tar", files, {"b/layer.tar": "../a/layer.tar"})


def test_the_same_files_give_the_same_bytes(archive: Path, tmp_path: Path, work: Callable[[], Path]) -> None:
    again = tmp_path / "again.tar"
    config = Config(entrypoint=("/usr/bin/pause",), cmd=("x",), user="65535:65535")
    write.write(again, PAUSE.reference, list(reversed(ITEMS)), config, work=work())
    assert again.read_bytes() == archive.read_bytes()


def test_written_archives_follow_the_image_layout_specification(archive: Path) -> None:
    files = read(archive)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": PAUSE.reference,
        "org.opencontainers.image.ref.name": "3.10.2",
    }
    manifest = json.loads(files["blobs/sha256/" + entry["digest"][7:]])
    config = json.loads(files["blobs/sha256/" + manifest["config"]["digest"][7:]])
    assert config["config"]["Entrypoint"] == ["/usr/bin/pause"]
    assert config["config"]["User"] == "65535:65535"
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    with tarfile.open(fileobj=io.BytesIO(files["blobs/sha256/" + layer["digest"][7:]])) as tar:
        members = {m.name: m for m in tar}
    assert list(members) == ["bin", "tmp", "usr", "usr/bin", "usr/bin/pause"]
    assert members["tmp"].mode == 0o1777
    assert members["bin"].issym()
    assert members["usr/bin/pause"].mode == 0o755
    assert {(m.mtime, m.uid, m.gid, m.uname) for m in members.values()} == {(0, 0, 0, "")}


def test_written_archives_are_accepted(archive: Path) -> None:
    oci.verify(archive, PAUSE)
    (found,) = oci.inspect(archive)
    (root,) = found.roots
    oci.verify(archive, PAUSE, root)
    assert found.references == (PAUSE.reference,)


def test_a_compressed_one_passes_too(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "pause.tar.gz"
    path.write_bytes(gzip.compress(archive.read_bytes()))
    oci.verify(path, PAUSE)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (ContainerImage("registry.k8s.io/pause:3.10.2", "windows"), "no image for windows/amd64"),
        (ContainerImage("registry.k8s.io/pause:3.10.1", "linux"), "would not be imported as"),
    ],
)
def test_another_image_is_refused(archive: Path, image: ContainerImage, text: str) -> None:
    with pytest.raises(TransferError, match=text) as refused:
        oci.verify(archive, image)
    assert "pause.tar" in str(refused.value)
    assert PAUSE.reference in str(refused.value)


def test_another_digest_is_refused(archive: Path) -> None:
    with pytest.raises(TransferError, match="not the published image"):
        oci.verify(archive, PAUSE, "sha256:" + 64 * "0")


@pytest.mark.parametrize("where", [100, 600, 3000, -4000])
def test_a_truncated_archive_is_refused(archive: Path, where: int) -> None:
    archive.write_bytes(archive.read_bytes().rstrip(b"\0")[:where])
    with pytest.raises((TransferError, UsageError), match=r"pause\.tar"):
        oci.verify(archive, PAUSE)


def test_a_truncated_compressed_archive_is_refused(archive: Path) -> None:
    content = gzip.compress(archive.read_bytes())
    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises((TransferError, UsageError), match=r"pause\.tar"):
        oci.verify(archive, PAUSE)


def test_a_changed_byte_is_found(archive: Path) -> None:
    content = archive.read_bytes().replace(b"\x7fELF...", b"\x7fELF..!")
    archive.write_bytes(content)
    with pytest.raises(TransferError, match="damaged"):
        oci.verify(archive, PAUSE)


def test_a_missing_blob_is_found(archive: Path, tmp_path: Path) -> None:
    files = read(archive)
    for name in [name for name in files if name.startswith("blobs/")]:
        fewer = {other: content for other, content in files.items() if other != name}
        with pytest.raises(TransferError, match="missing"):
            oci.verify(pack(tmp_path / "fewer.tar", fewer), PAUSE)


@pytest.mark.parametrize("content", [b"", b"no tar at all" * 100, b"\x1f\x8bno gzip"])
def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.tar.* is not an archive of container images"):
        oci.inspect(path)


def test_a_tar_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither an index\.json"):
        oci.inspect(pack(tmp_path / "x.tar", {"README": b"hello"}))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        oci.inspect(tmp_path / "nowhere.tar")


@pytest.mark.parametrize("index", ["no json", "[]", '{"manifests": [{}]}', '{"manifests": [{"digest": 1}]}'])
def test_a_broken_index_is_refused(tmp_path: Path, index: str) -> None:
    path = pack(tmp_path / "x.tar", {"oci-layout": b"{}", "index.json": index.encode()})
    with pytest.raises(TransferError, match="damaged"):
        oci.inspect(path)


def test_of_a_nested_index_the_right_platform_is_taken(archive: Path, tmp_path: Path) -> None:
    files = read(archive)
    (entry,) = json.loads(files["index.json"])["manifests"]
    ours = {key: entry[key] for key in ("digest", "size", "mediaType", "platform")}
    arm = {"digest": "sha256:" + 64 * "a", "size": 1, "mediaType": entry["mediaType"], "platform": {"os": "linux"}}
    proof = put(files, {"mediaType": entry["mediaType"], "config": {}, "layers": []})
    proof |= {"mediaType": entry["mediaType"], "platform": {"os": "unknown", "architecture": "unknown"}}
    inner = put(files, {"mediaType": oci.INDEXES[0], "manifests": [arm, proof, ours]})
    top = {**inner, "mediaType": oci.INDEXES[0], "annotations": entry["annotations"]}
    files["index.json"] = json.dumps({"manifests": [top]}).encode()
    path = pack(tmp_path / "nested.tar", files)
    oci.verify(path, PAUSE, inner["digest"])
    oci.verify(path, PAUSE, entry["digest"])


def test_an_archive_of_docker_save_becomes_an_oci_archive(tmp_path: Path, work: Callable[[], Path]) -> None:
    target = tmp_path / "out.tar"
    image = oci.convert(docker(tmp_path, ["me/web:1"]), target, "linux", work=work())
    assert image == ContainerImage("docker.io/me/web:1", "linux")
    oci.verify(target, image)
    (found,) = oci.inspect(target)
    assert [layer.digest for layer in found.layers] == ["sha256:" + sha(b"layer")] * 2


def test_an_archive_of_docker_save_is_not_mistaken_for_an_oci_archive(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="docker save"):
        oci.verify(docker(tmp_path, [PAUSE.reference]), PAUSE)


@pytest.mark.parametrize(
    ("layer", "kind"), [(gzip.compress(b"x"), "+gzip"), (b"\x28\xb5\x2f\xfd...", "+zstd"), (b"x", "")]
)
def test_layers_get_the_media_type_of_their_content(
    tmp_path: Path, work: Callable[[], Path], layer: bytes, kind: str
) -> None:
    target = tmp_path / "out.tar"
    oci.convert(docker(tmp_path, ["a:1"], layer=layer), target, "linux", work=work())
    (found,) = oci.inspect(target)
    assert {one.kind for one in found.layers} == {oci.LAYER + kind}


def test_a_converted_image_gets_the_name_that_is_asked_for(
    archive: Path, tmp_path: Path, work: Callable[[], Path]
) -> None:
    target = tmp_path / "out.tar"
    image = oci.convert(archive, target, "linux", work=work(), reference="my.registry:5000/pause:mine")
    assert image.reference == "my.registry:5000/pause:mine"
    oci.verify(target, image)


def test_a_layout_converted_under_its_own_name_is_the_same(
    archive: Path, tmp_path: Path, work: Callable[[], Path]
) -> None:
    oci.convert(archive, tmp_path / "out.tar", "linux", work=work())
    assert (tmp_path / "out.tar").read_bytes() == archive.read_bytes()


def test_an_image_without_a_name_is_refused(tmp_path: Path, work: Callable[[], Path]) -> None:
    with pytest.raises(UsageError, match="has no name"):
        oci.convert(docker(tmp_path, None), tmp_path / "out.tar", "linux", work=work())


def annotated(archive: Path, path: Path, **notes: str) -> Path:
    """The archive with other annotations in its index."""
    files = read(archive)
    (entry,) = json.loads(files["index.json"])["manifests"]
    names = {"own": "io.containerd.image.name", "ref": "org.opencontainers.image.ref.name"}
    entry["annotations"] = {names[key]: value for key, value in notes.items()}
    return pack(path, files | {"index.json": json.dumps({"manifests": [entry]}).encode()})


@pytest.mark.parametrize(
    ("notes", "name"),
    [
        ({"ref": "localhost/app:1"}, "localhost/app:1"),  # as podman writes it
        ({"ref": "app:1"}, "docker.io/library/app:1"),
        ({"ref": "registry.example/app:1", "own": "docker.io/library/own:2"}, "docker.io/library/own:2"),
    ],
)
def test_m6_the_name_that_podman_and_skopeo_write_is_read(
    notes: dict[str, str], name: str, archive: Path, tmp_path: Path, work: Callable[[], Path]
) -> None:
    """podman-container-tools/skopeo#2776."""
    path = annotated(archive, tmp_path / "saved.tar", **notes)
    assert oci.convert(path, tmp_path / "out.tar", "linux", work=work()).reference == name
    oci.verify(tmp_path / "out.tar", ContainerImage(name, "linux"))


def test_m6_by_such_a_name_ctr_would_not_import_it(archive: Path, tmp_path: Path) -> None:
    path = annotated(archive, tmp_path / "saved.tar", ref=PAUSE.reference)
    with pytest.raises(TransferError, match="would not be imported as"):
        oci.verify(path, PAUSE)


@pytest.mark.parametrize("tag", ["v1", "latest", ""])
def test_m6_a_tag_alone_is_not_a_name(tag: str, archive: Path, tmp_path: Path, work: Callable[[], Path]) -> None:
    with pytest.raises(UsageError, match="has no name"):
        oci.convert(annotated(archive, tmp_path / "x.tar", ref=tag), tmp_path / "out.tar", "linux", work=work())


@pytest.mark.parametrize(
    "how",
    [
        {"urls": ["https://mcr.example/blob"]},
        {"mediaType": "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"},
        {"mediaType": "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip"},
    ],
)
def test_m7_a_layer_that_is_elsewhere_is_not_damage(how: dict[str, Any], archive: Path, tmp_path: Path) -> None:
    files = read(archive)
    (entry,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files["blobs/" + entry["digest"].replace(":", "/")])
    manifest["layers"][0] |= {"digest": "sha256:" + 64 * "a", **how}
    entry |= put(files, manifest)
    files["index.json"] = json.dumps({"manifests": [entry]}).encode()
    with pytest.raises(UsageError, match="has no copy of a layer of Windows") as caught:
        oci.inspect(pack(tmp_path / "foreign.tar", files))
    assert "docker-archive:FILE" in caught.value.cure


def test_an_image_for_the_other_system_is_refused(tmp_path: Path, work: Callable[[], Path]) -> None:
    with pytest.raises(UsageError, match="no image for linux/amd64"):
        oci.convert(docker(tmp_path, ["a:1"], os="windows"), tmp_path / "out.tar", "linux", work=work())


def test_a_layer_that_docker_did_not_save_is_named(tmp_path: Path) -> None:
    files = read(docker(tmp_path, ["a:1"]))
    del files["a/layer.tar"], files["b/layer.tar"]
    with pytest.raises(TransferError, match=r"'a/layer.tar' is missing"):
        oci.inspect(pack(tmp_path / "x.tar", files))


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1", "docker.io/library/nginx:1"),
        ("me/web", "docker.io/me/web:latest"),
        ("localhost/web:2", "localhost/web:2"),
        ("host:5000/web", "host:5000/web:latest"),
        ("registry.k8s.io/pause:3.10.2", "registry.k8s.io/pause:3.10.2"),
        ("quay.io/x@sha256:" + "1" * 64, "quay.io/x@sha256:" + "1" * 64),
    ],
)
def test_names_in_full(short: str, full: str) -> None:
    assert oci.full_name(short) == full


def test_endless_documents_are_refused(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten compressed megabytes could be ten gigabytes of documents, which are kept in memory."""
    files = read(archive)
    files |= {f"blobs/sha256/{number}": b"{" + bytes(1 << 20) for number in range(3)}
    path = pack(tmp_path / "x.tar", files)
    path.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(oci, "DOCUMENTS", 2 << 20)
    with pytest.raises(TransferError, match="damaged") as caught:
        oci.inspect(path)
    assert "documents" in caught.value.why


def test_small_layers_are_not_kept(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = read(archive) | {f"other/{number}": bytes(1 << 20) for number in range(3)}
    monkeypatch.setattr(oci, "DOCUMENTS", 1 << 20)
    assert oci.inspect(pack(tmp_path / "x.tar", files))


def test_indexes_that_multiply_are_refused(archive: Path, tmp_path: Path) -> None:
    """Three levels with a hundred entries each are a million images."""
    files = read(archive)
    entry = json.loads(files["index.json"])["manifests"][0]
    for _ in range(3):
        entry = {**put(files, {"manifests": [entry] * 100}), "mediaType": oci.INDEXES[0]}
    files["index.json"] = json.dumps({"manifests": [entry]}).encode()
    with pytest.raises(TransferError) as caught:
        oci.inspect(pack(tmp_path / "x.tar", files))
    assert "too many entries" in caught.value.why


def test_an_index_that_refers_to_itself_is_refused(archive: Path, tmp_path: Path) -> None:
    """Its name is not a SHA-256, so that nothing compares it."""
    files = read(archive)
    entry = {"digest": "md5:x", "mediaType": oci.INDEXES[0]}
    files["index.json"] = files["blobs/md5/x"] = json.dumps({"manifests": [entry]}).encode()
    with pytest.raises(TransferError) as caught:
        oci.inspect(pack(tmp_path / "x.tar", files))
    assert "lead to each other" in caught.value.why
