"""The sources against real servers on the loopback: the CNCF's registry, and web servers with TLS."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess  # noqa: TID251 - tar(1) reads a bundle
import tarfile
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest
from registry_server import Certificate, Pusher, build, digest, registry, serving, tokens

from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.catalog.pins import ImagePin, ManifestPin, Pins, ProgramPin
from winlab.errors import NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.supply.artifacts import select, store
from winlab.supply.artifacts.bundle import file as bundle
from winlab.supply.artifacts.bundle.source import BundleSource
from winlab.supply.artifacts.oci import archive as oci
from winlab.supply.artifacts.oci.registry import pull
from winlab.supply.artifacts.upstream import UpstreamSource

pytestmark = pytest.mark.integration

ELF = b"\x7fELF\x02\x01\x01" + bytes(11) + (62).to_bytes(2, "little") + os.urandom(3_000_000)
ARM = b"\x7fELF\x02\x01\x01" + bytes(11) + (183).to_bytes(2, "little") + bytes(1000)
PE = b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0\x64\x86" + os.urandom(5000)
LAYERS = {build: os.urandom(200_000) for build in ("10.0.17763.7", "10.0.20348.3", "10.0.26100.1", "linux", "arm64")}
SHA256 = {content: hashlib.sha256(content).hexdigest() for content in (ELF, ARM, PE)}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, certificate: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


# --- a real registry ---

LIMIT = 120  # seconds for a registry whose disk is busy


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("registry"))


@pytest.fixture(scope="module")
def filled(program: Path, certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A registry with an image for several systems, as it is and under its own registry's name; its host and digest."""
    folder = tmp_path_factory.mktemp("images")
    with registry(program, folder, certificate) as host:
        with httpx.Client(verify=certificate.trust(), trust_env=False, timeout=LIMIT) as client:
            pusher = Pusher(host, client)
            for name in ("pause", "registry.k8s.io/pause", "docker.io/library/nginx"):
                entries = [
                    (pusher.image(name, "linux", LAYERS["arm64"], arch="arm64"), "linux", "arm64", ""),
                    (pusher.image(name, "linux", LAYERS["linux"], docker=True), "linux", "amd64", ""),
                ]
                for version in ("10.0.17763.7", "10.0.20348.3", "10.0.26100.1"):
                    entries.append((pusher.image(name, "windows", LAYERS[version]), "windows", "amd64", version))
                top = pusher.index(name, "3.10.2", entries)
            pusher.image("single", "linux", LAYERS["linux"], tag="1")
            pusher.image("arm", "linux", LAYERS["arm64"], tag="1", arch="arm64")
            # says one thing in its index and another in its configuration
            liar = pusher.image("liar", "linux", LAYERS["arm64"], arch="arm64")
            pusher.index("liar", "1", [(liar, "linux", "amd64", "")])
        yield host, top, folder


def blobs(archive: Path) -> set[bytes]:
    with tarfile.open(archive) as tar:
        return {file.read() for member in tar if (file := tar.extractfile(member))}


def take(image: ContainerImage, tmp_path: Path, **more: Any) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    target = tmp_path / image.file
    pull(image, target, Quiet(), work=work, pause=0.01, **more)
    oci.verify(target, image)
    return target


def test_one_platform_of_an_index(filled: Any, tmp_path: Path) -> None:
    image = ContainerImage(f"{filled[0]}/pause:3.10.2", "linux")
    archive = take(image, tmp_path, digest=filled[1])
    assert LAYERS["linux"] in blobs(archive)
    assert not blobs(archive) & {LAYERS["arm64"], LAYERS["10.0.20348.3"]}
    with tarfile.open(archive) as tar:
        index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == image.reference


def test_one_build_of_windows(filled: Any, tmp_path: Path) -> None:
    archive = take(ContainerImage(f"{filled[0]}/pause:3.10.2", "windows"), tmp_path, os_build="10.0.20348")
    assert blobs(archive) & set(LAYERS.values()) == {LAYERS["10.0.20348.3"]}


def test_all_builds_of_windows(filled: Any, tmp_path: Path) -> None:
    archive = take(ContainerImage(f"{filled[0]}/pause:3.10.2", "windows"), tmp_path)
    found = blobs(archive) & set(LAYERS.values())
    assert found == {LAYERS[build] for build in ("10.0.17763.7", "10.0.20348.3", "10.0.26100.1")}
    assert len(oci.inspect(archive)) == 3


def test_an_image_without_an_index(filled: Any, tmp_path: Path) -> None:
    take(ContainerImage(f"{filled[0]}/single:1", "linux"), tmp_path)


@pytest.mark.parametrize(
    ("reference", "os"), [("registry.k8s.io/pause:3.10.2", "windows"), ("docker.io/nginx:3.10.2", "linux")]
)
def test_a_mirror_has_the_registry_as_first_part(filled: Any, tmp_path: Path, reference: str, os: Any) -> None:
    take(ContainerImage(reference, os), tmp_path, mirror=f"https://{filled[0]}/a/path/for/files")


def test_the_same_pull_gives_the_same_bytes(filled: Any, tmp_path: Path) -> None:
    image = ContainerImage(f"{filled[0]}/pause:3.10.2", "windows")
    archives = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        archives.append(take(image, tmp_path / name).read_bytes())
    assert archives[0] == archives[1]


@pytest.mark.parametrize(
    ("path", "os", "more", "error", "words"),
    [
        ("nothing:1", "linux", {}, NotFoundError, "has no image"),
        ("pause:9", "linux", {}, NotFoundError, "has no image"),
        ("single:1", "linux", {"digest": "sha256:" + "0" * 64}, NotFoundError, "has no image"),
        ("single:1", "windows", {}, TransferError, "another platform"),
        ("arm:1", "linux", {}, TransferError, "another platform"),
        ("liar:1", "linux", {}, TransferError, "another platform"),
        ("pause:3.10.2", "windows", {"os_build": "10.0.2034"}, NotFoundError, "for windows on amd64, build 10.0.2034"),
    ],
)
def test_missing_and_unsuitable_images_are_refused(
    filled: Any, tmp_path: Path, path: str, os: Any, more: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        take(ContainerImage(f"{filled[0]}/{path}", os), tmp_path, **more)
    assert path in str(caught.value)
    assert not list(tmp_path.glob("*.tar"))


def test_an_altered_layer_in_the_registrys_store(program: Path, certificate: Certificate, tmp_path: Path) -> None:
    """The registry serves the stored bytes without checking them."""
    content = os.urandom(100_000)
    with registry(program, tmp_path, certificate) as host:
        with httpx.Client(verify=certificate.trust(), trust_env=False, timeout=LIMIT) as client:
            Pusher(host, client).image("bad", "linux", content, tag="1")
        name = digest(content).removeprefix("sha256:")
        file = next((tmp_path / "store").rglob(f"{name}/data"))
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        with pytest.raises(TransferError, match=r"A layer of image .*/bad:1") as caught:
            take(ContainerImage(f"{host}/bad:1", "linux"), tmp_path)
    assert "its digest is" in caught.value.why


def test_a_registry_that_requires_tokens(filled: Any, program: Path, certificate: Certificate, tmp_path: Path) -> None:
    with tokens(certificate) as (port, scopes):
        auth = {
            "token": {
                "realm": f"http://127.0.0.1:{port}/token",
                **{"service": "registry", "issuer": "tests", "rootcertbundle": str(certificate.path)},
            }
        }
        with registry(program, filled[2], certificate, auth) as host:
            take(ContainerImage(f"{host}/pause:3.10.2", "linux"), tmp_path)
    assert scopes == ["repository:pause:pull"]  # once: the token is kept


def test_a_registry_that_requires_a_user(program: Path, filled: Any, certificate: Certificate, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("")
    auth = {"htpasswd": {"realm": "tests", "path": str(tmp_path / "users")}}
    with (
        registry(program, filled[2], certificate, auth) as host,
        pytest.raises(TransferError, match=r"refuses .*401") as caught,
    ):
        take(ContainerImage(f"{host}/pause:3.10.2", "linux"), tmp_path)
    assert "has no name and password for" in caught.value.why


def test_a_registry_with_an_unknown_certificate(filled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(TransferError, match="can't be pulled") as caught:
        take(ContainerImage(f"{filled[0]}/pause:3.10.2", "linux"), tmp_path)
    assert "certificate" in caught.value.why.lower()


# --- web servers ---


class Site(BaseHTTPRequestHandler):
    """Files by their paths; first answers of other kinds, if any."""

    files: dict[str, bytes]
    asked: list[tuple[str, str]]
    answers: list[int]
    protocol_version = "HTTP/1.0"

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.asked.append((self.command, self.path))
        if self.answers or self.path not in self.files:
            self.send_response(self.answers.pop(0) if self.answers else 404)
            self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.files[self.path]
        self.send_response(200)
        kind = json.loads(body).get("mediaType") if body.startswith(b"{") else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


@pytest.fixture
def site() -> type[Site]:
    return type("Here", (Site,), {"files": {}, "asked": [], "answers": []})


def tar_gz(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"./bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return packed.getvalue()


def program_pin(name: str, os: Any, url: str, file: bytes, **more: Any) -> ProgramPin:
    digests = {} if "sums_url" in more else {"sha256": hashlib.sha256(file).hexdigest()}
    return ProgramPin(name=name, version="v1", os=os, url=url, **digests, **more)


def test_files_archives_and_lists_of_digests(site: type[Site], certificate: Certificate) -> None:
    archive = tar_gz(containerd=ELF, ctr=ELF[:-1], odd=ARM)
    packed = zipped("flanneld.exe", PE)
    site.files = {
        "/v1/kubelet.exe": PE,
        "/c.tar.gz": archive,
        "/c.tar.gz.sum": f"{'0' * 64}  other.tar.gz\n{hashlib.sha256(archive).hexdigest()}  c.tar.gz\n".encode(),
        "/f.zip": packed,
        "/m.yaml": b"kind: List\n",
    }
    with serving(site, certificate) as port:
        base = f"https://localhost:{port}"
        sums = f"{base}/c.tar.gz.sum"
        pins = Pins(
            programs=(
                program_pin("kubelet", "windows", f"{base}/v1/kubelet.exe", PE),
                program_pin("containerd", "linux", f"{base}/c.tar.gz", archive, member="bin/containerd", sums_url=sums),
                program_pin("ctr", "linux", f"{base}/c.tar.gz", archive, member="bin/ctr", sums_url=sums),
                program_pin("odd", "linux", f"{base}/c.tar.gz", archive, member="bin/odd", sums_url=sums),
                program_pin("gone", "linux", f"{base}/c.tar.gz", archive, member="bin/gone", sums_url=sums),
                program_pin("flanneld", "windows", f"{base}/f.zip", packed, member="flanneld.exe"),
            ),
            manifests=(
                ManifestPin(
                    project="calico", version="v3", name="m.yaml", url=f"{base}/m.yaml",
                    sha256=hashlib.sha256(b"kind: List\n").hexdigest(),
                ),
            ),
        )  # fmt: skip
        source = UpstreamSource(pins, pause=0.01)
        wanted = [pin.artifact for pin in pins if pin.artifact not in (odd(), gone())]
        got = source.obtain_all(wanted, Quiet())
        assert [one.artifact for one in got] == wanted
        assert [one.path.read_bytes() for one in got] == [PE, ELF, ELF[:-1], PE, b"kind: List\n"]
        assert [path for _, path in site.asked].count("/c.tar.gz") == 1
        assert got[1].origin == f"{base}/c.tar.gz"
        assert os.access(got[0].path, os.X_OK)
        with pytest.raises(TransferError, match="has a wrong odd v1") as caught:
            source.obtain(odd(), Quiet())
        assert "arm64" in caught.value.why
        with pytest.raises(TransferError, match="has no gone v1"):
            source.obtain(gone(), Quiet())
        # what came is there without a server
        site.files.clear()
        site.asked.clear()
        assert [one.path for one in source.obtain_all(wanted, Quiet())] == [one.path for one in got]
        assert source.probe_url(wanted) is None
        assert not site.asked


def odd() -> Program:
    return Program("odd", "v1", "linux")


def gone() -> Program:
    return Program("gone", "v1", "linux")


@pytest.mark.parametrize(
    ("served", "words", "reason"),
    [
        (PE + b"!", "can't be obtained from upstream", "should be"),
        (None, "can't be obtained from upstream", "was not found"),
        (b"<html>Log in</html>", "can't be obtained from upstream", "web page"),
    ],
)
def test_wrong_files_are_refused_by_name(site: type[Site], served: bytes | None, words: str, reason: str) -> None:
    site.files = {"/kubelet.exe": served} if served else {}
    with serving(site) as port:
        pins = Pins(programs=(program_pin("kubelet", "windows", f"http://127.0.0.1:{port}/kubelet.exe", PE),))
        with pytest.raises(TransferError, match=words) as caught:
            UpstreamSource(pins, pause=0.01).obtain(Program("kubelet", "v1", "windows"), Quiet())
    assert "kubelet.exe v1 (windows)" in caught.value.what
    assert reason in caught.value.why
    assert not store.entries()


@pytest.mark.parametrize("name", ["c.tar.gz", "c.zip"])
def test_a_broken_archive_with_the_right_digest(site: type[Site], name: str) -> None:
    content = gzip.compress(b"no tar") if name.endswith("gz") else b"PK no zip"
    site.files = {f"/{name}": content}
    with serving(site) as port:
        pin = program_pin("ctr", "linux", f"http://127.0.0.1:{port}/{name}", content, member="ctr")
        with pytest.raises(TransferError, match=r"ctr v1 \(linux\) can't be obtained"):
            UpstreamSource(Pins(programs=(pin,)), pause=0.01).obtain(pin.artifact, Quiet())


def test_a_mirror_of_everything(site: type[Site], filled: Any, certificate: Certificate) -> None:
    """One address for files and images: a server for files here, whose host is not the registry's."""
    site.files = {"/pub/v1/kubelet.exe": PE}
    pins = Pins(
        programs=(program_pin("kubelet", "windows", "https://publisher.invalid/v1/kubelet.exe", PE),),
        images=(ImagePin(reference="registry.k8s.io/pause:3.10.2", os="linux", digest=filled[1]),),
    )
    with serving(site) as port:
        source = UpstreamSource(pins, f"http://127.0.0.1:{port}/pub", pause=0.01)
        assert source.name == "mirror"
        got = source.obtain(Program("kubelet", "v1", "windows"), Quiet())
        assert got.path.read_bytes() == PE
    image = UpstreamSource(pins, f"https://{filled[0]}", pause=0.01).obtain(pins.images[0].artifact, Quiet())
    oci.verify(image.path, pins.images[0].artifact)
    assert image.origin == f"https://{filled[0]}/registry.k8s.io/pause"


def test_a_folder_as_a_mirror(filled: Any, tmp_path: Path) -> None:
    folder = tmp_path / "mirror"
    folder.mkdir()
    image = ContainerImage(f"{filled[0]}/single:1", "linux")
    take(image, tmp_path).rename(folder / image.file)
    manifest = next(iter(oci.inspect(folder / image.file)[0].roots))
    (folder / "kubelet.exe").write_bytes(PE)
    pins = Pins(
        programs=(program_pin("kubelet", "windows", "https://publisher.invalid/v1/kubelet.exe", PE),),
        images=(ImagePin(reference=image.reference, os="linux", digest=manifest),),
    )
    source = UpstreamSource(pins, str(folder))
    assert [one.artifact for one in source.obtain_all([image, pins.programs[0].artifact], Quiet())] == [
        image,
        pins.programs[0].artifact,
    ]
    other = Pins(images=(ImagePin(reference=image.reference, os="linux", digest="sha256:" + "0" * 64),))
    with pytest.raises(TransferError, match="not the published image"):
        UpstreamSource(other, str(folder)).obtain(image, Quiet())


def test_a_registry_that_is_busy_and_then_cuts(site: type[Site], tmp_path: Path) -> None:
    """A server that follows the specification, and misbehaves on request."""
    layer, config = b"layer" * 1000, b'{"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": ["x"]}}'
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "c", "digest": digest(config), "size": len(config)},
        "layers": [{"mediaType": "l", "digest": digest(layer), "size": len(layer)}],
    }
    site.files = {
        "/v2/r.example/x/manifests/1": json.dumps(document).encode(),
        f"/v2/r.example/x/blobs/{digest(layer)}": layer,
        f"/v2/r.example/x/blobs/{digest(config)}": config,
    }
    site.answers = [429, 503]
    image = ContainerImage("r.example/x:1", "linux")
    with serving(site) as port:
        take(image, tmp_path, mirror=f"http://127.0.0.1:{port}")
        (tmp_path / "two").mkdir()
        site.answers = [429] * 20
        with pytest.raises(TransferError, match="can't be pulled") as caught:
            take(image, tmp_path / "two", mirror=f"http://127.0.0.1:{port}")
        assert "429" in caught.value.why
        site.answers = []
        (tmp_path / "three").mkdir()
        site.files[f"/v2/r.example/x/blobs/{digest(layer)}"] = layer[:-1]
        with pytest.raises(TransferError, match=r"A layer of image r\.example/x:1") as caught:
            take(image, tmp_path / "three", mirror=f"http://127.0.0.1:{port}")
        assert "ended after" in caught.value.why


# --- choice, and a bundle of all that ---


def test_the_choice_knows_which_source_answers(site: type[Site]) -> None:
    def no_build() -> Any:
        raise UsageError("There is no Go.")

    site.files = {"/v1/kubelet.exe": PE}
    with serving(site) as port:
        pins = Pins(programs=(program_pin("kubelet", "windows", f"http://127.0.0.1:{port}/v1/kubelet.exe", PE),))
        wanted = [pins.programs[0].artifact]
        source, reason = select.choose(wanted, pins=pins, build=no_build)
        assert source.name == "upstream"
        assert reason == f"upstream: 127.0.0.1:{port} answers, because there is no bundle in the cache."
        assert site.asked == [("HEAD", "/v1/kubelet.exe")]
        with pytest.raises(NotFoundError, match="No source") as caught:
            select.choose(wanted, pins=pins, build=no_build, mirror=f"http://127.0.0.1:{port}/elsewhere")
        assert "404" in caught.value.why
    with pytest.raises(NotFoundError, match="No source") as caught:
        select.choose(wanted, pins=pins, build=no_build)
    assert "can't be reached" in caught.value.why
    assert "There is no Go." in caught.value.why


def test_a_bundle_of_it_all_needs_no_network(
    site: type[Site], filled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files = {"/kubelet.exe": PE, "/kubelet": ELF, "/m.yaml": b"kind: List\n"}
    with serving(site) as port:
        base = f"http://127.0.0.1:{port}"
        pins = Pins(
            programs=(
                program_pin("kubelet", "windows", f"{base}/kubelet.exe", PE),
                program_pin("kubelet", "linux", f"{base}/kubelet", ELF),
            ),
            images=(ImagePin(reference=f"{filled[0]}/pause:3.10.2", os="windows", digest=filled[1]),),
            manifests=(
                ManifestPin(project="p", version="v3", name="m.yaml", url=f"{base}/m.yaml",
                            sha256=hashlib.sha256(b"kind: List\n").hexdigest()),
            ),
        )  # fmt: skip
        wanted = [pin.artifact for pin in pins]
        got = UpstreamSource(pins, pause=0.01).obtain_all(wanted, Quiet())
    path = bundle.folder() / "lab.tar"
    made = bundle.write(path, got, {"spec": "1-1-1"}, Quiet())
    again = bundle.write(tmp_path / "again.tar", reversed(got), {"spec": "1-1-1"}, Quiet())
    assert path.read_bytes() == again.path.read_bytes()
    assert bundle.verify(path, Quiet()).digest == made.digest
    listed = subprocess.run(["tar", "-tf", path], capture_output=True, text=True, check=True).stdout.split()
    assert listed == ["bundle.json", *(f"files/{one.sha256}" for one in sorted(got, key=lambda one: str(one.artifact)))]

    elsewhere = tmp_path / "another host"
    (elsewhere / "bundles").mkdir(parents=True)
    path.rename(elsewhere / "bundles" / path.name)
    monkeypatch.setenv("WINLAB_CACHE", str(elsewhere))
    source, reason = select.choose(wanted, pins=pins, build=lambda: pytest.fail("no need"))
    own = "(which alone has digests of 1 of 4 artifacts)"  # of a container image's file no digest is known
    assert (source.name, reason) == ("bundle", f"bundle: 'lab.tar' in the cache has everything {own}.")
    taken = source.obtain_all(wanted, Quiet())
    assert [(one.artifact, one.sha256) for one in taken] == [(one.artifact, one.sha256) for one in got]
    oci.verify(taken[2].path, pins.images[0].artifact)
    with pytest.raises(NotFoundError, match=r"has no x of y z"):
        BundleSource(elsewhere / "bundles" / path.name).obtain(Manifest("y", "z", "x"), Quiet())
