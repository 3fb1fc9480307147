"""Pins, lists of digests, archives, kinds of programs: what the source ``upstream`` needs no server for."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from winlab.design.catalog.artifact import Artifact, ContainerImage, Manifest, Obtained, Program
from winlab.design.catalog.pins import ImagePin, ManifestPin, ModulePin, Pins, ProgramPin
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.supply import download, tars
from winlab.supply.artifacts import executable, parallel, store, unpack, upstream, web

ZERO, ONE = "0" * 64, "1" * 64
KUBELET = ProgramPin(name="kubelet", version="v1", os="linux", url="https://dl.example/v1/kubelet", sha256=ZERO)
CTR = ProgramPin(name="ctr", version="2", os="linux", url="https://gh.example/c.tar.gz", sha256=ONE, member="bin/ctr")
PAUSE = ImagePin(reference="registry.k8s.io/pause:3.10.2", os="windows")
YAML = ManifestPin(project="calico", version="v3", name="a.yaml", url="https://gh.example/a.yaml", sha256=ZERO)


def elf(machine: int = 62, bits: int = 2) -> bytes:
    return b"\x7fELF" + bytes([bits, 1, 1]) + bytes(11) + machine.to_bytes(2, "little") + bytes(100)


def pe(machine: int = 0x8664) -> bytes:
    return b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0" + machine.to_bytes(2, "little") + bytes(100)


def test_pins_are_found_by_their_artifact() -> None:
    pins = Pins(programs=(KUBELET, CTR), images=(PAUSE,), manifests=(YAML,))
    assert pins.program(Program("ctr", "2", "linux")) is CTR
    assert pins.program(Program("ctr", "2", "windows")) is None
    assert pins.image(ContainerImage(PAUSE.reference, "windows")) is PAUSE
    assert pins.manifest(Manifest("calico", "v3", "a.yaml")) is YAML
    assert list(pins) == [KUBELET, CTR, PAUSE, YAML]


@pytest.mark.parametrize(
    "bad",
    [
        {"sha256": None},
        {"sha512": "0" * 128},
        {"sums_url": "https://dl.example/sums"},
        {"sha256": "0" * 63},
        {"url": "ftp://dl.example/x"},
        {"name": "../kubelet"},
        {"os": "macos"},
        {"memeber": "x"},
    ],
)
def test_bad_rows_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ProgramPin.model_validate({**KUBELET.model_dump(exclude_none=True), **bad})


def test_rows_that_contradict_each_other_are_refused() -> None:
    module = ModulePin(path="x.org/y", version="v1.0.0", sum=f"h1:{'A' * 43}=")
    assert Pins(modules=(module,)).with_those_of([Pins(modules=(module,))]).modules == (module,)
    with pytest.raises(ValidationError, match="a module is pinned twice"):
        Pins(modules=(module, module))
    other = module.model_copy(update={"sum": f"h1:{'B' * 43}="})
    with pytest.raises(HostError, match=r"The Go module x\.org/y v1\.0\.0 is pinned in two ways"):
        Pins(modules=(module,)).with_those_of([Pins(modules=(other,))])
    with pytest.raises(ValidationError, match="pinned twice"):
        Pins(programs=(KUBELET, KUBELET.model_copy(update={"url": "https://other.example/kubelet"})))
    with pytest.raises(ValidationError, match="is two programs"):
        Pins(programs=(KUBELET, KUBELET.model_copy(update={"name": "kubeadm"})))
    with pytest.raises(ValidationError, match="windows only"):
        ImagePin(reference="registry.k8s.io/pause:1", os="linux", os_build="10.0.20348")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"{ZERO}\n", ZERO),
        (f"{ZERO.upper()}", ZERO),
        ("a" * 128, "a" * 128),
        (f"{ONE}  other\n{ZERO}  kubelet\n", ZERO),
        (f"{ZERO} *kubelet\n", ZERO),
        (f"{ZERO}  ./out/kubelet\n", ZERO),
        (f"{ZERO}  kubelet.exe\n", None),
        (f'{{"assets": [{{"name": "x", "digest": null}}, {{"name": "kubelet", "digest": "sha256:{ONE}"}}]}}', ONE),
        (f'{{"assets": [{{"name": "x", "digest": "sha256:{ONE}"}}]}}', None),
        ('{"assets": [{"name": "kubelet", "digest": "md5:00"}]}', None),
        ('{"message": "API rate limit exceeded"}', None),
        ("Not found\n", None),
        ("0" * 63, None),
        ("", None),
    ],
)
def test_lists_of_digests(text: str, found: str | None) -> None:
    assert upstream.listed_digest(text, "kubelet") == found


@pytest.mark.parametrize(
    ("content", "os", "words"),
    [
        (elf(), "linux", None),
        (pe(), "windows", None),
        (elf(183), "linux", "for arm64"),
        (elf(62, 1), "linux", "x32"),
        (elf(3, 1), "linux", "x86 (32 bit)"),
        (elf(999), "linux", "machine 999"),
        (pe(0xAA64), "windows", "for arm64"),
        (pe(0x14C), "windows", "32 bit"),
        (elf(), "windows", "a Linux program (ELF) for amd64, but should be a Windows program"),
        (pe(), "linux", "a Windows program (PE) for amd64, but should be a Linux program"),
        (b"", "linux", "It is empty"),
        (b"#!/bin/sh\n", "linux", "a script"),
        (b"<html>", "linux", "a web page"),
        (b"MZ" + bytes(200), "windows", "a DOS program"),
        (b"\xcf\xfa\xed\xfe" + bytes(80), "linux", "macOS"),
        (b"hello", "linux", "no program"),
    ],
)
def test_kinds_of_programs(tmp_path: Path, content: bytes, os: Any, words: str | None) -> None:
    file = tmp_path / "program"
    file.write_bytes(content)
    problem = executable.problem(file, os)
    assert problem is None if words is None else words in str(problem)


def packed(kind: str, members: dict[str, bytes], folder: Path) -> Path:
    path = folder / f"a{kind}"
    if kind == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("kind", [".tar.gz", ".tgz", ".zip"])
def test_members_are_extracted(tmp_path: Path, kind: str) -> None:
    archive = packed(kind, {"./bin/ctr": b"one", "../../evil": b"two", "bin/other": b"three"}, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    wanted = {"bin/ctr": out / "a", "../../evil": out / "b", "bin/missing": out / "c"}
    assert unpack.members(archive, wanted) == {"bin/ctr", "../../evil"}
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"a": b"one", "b": b"two"}
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("kind", [".tar.gz", ".zip"])
def test_a_cut_archive_is_refused(tmp_path: Path, kind: str) -> None:
    archive = packed(kind, {"ctr": bytes(range(256)) * 100}, tmp_path)
    archive.write_bytes(archive.read_bytes()[:-200])
    with pytest.raises(TransferError, match="can't be unpacked"):
        unpack.members(archive, {"ctr": tmp_path / "ctr"})


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as tar:
        info = tarfile.TarInfo("ctr")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(TransferError, match="not a plain file"):
        unpack.members(tmp_path / "a.tgz", {"ctr": tmp_path / "ctr"})
    with pytest.raises(UsageError, match="not a supported archive"):
        unpack.members(tmp_path / "a.7z", {})


@pytest.mark.parametrize("mirror", ["https://me:secret@mirror.example", "https://me@mirror.example/x"])
def test_a_mirror_with_a_password_is_refused_without_showing_it(mirror: str) -> None:
    with pytest.raises(UsageError, match="password in its address") as caught:
        download.check_mirror(mirror)
    assert "secret" not in str(caught.value)
    with pytest.raises(UsageError):
        upstream.UpstreamSource(Pins(), mirror)
    with pytest.raises(UsageError) as caught:  # as 'image pull --mirror' does
        download.rewrite("https://publisher.example/x", mirror)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("mirror", "refused"),
    [
        ("http://mirror.example", True),
        ("http://127.0.0.1.mirror.example", True),
        ("http://192.0.2.1:8080/x", True),
        ("https://mirror.example", False),
        ("http://127.0.0.1:8080", False),
        ("http://[::1]/x", False),
        ("http://localhost:8080", False),
    ],
)
def test_a_mirror_that_others_can_alter_verifies_nothing(mirror: str, refused: bool) -> None:
    listed = KUBELET.model_copy(update={"sha256": None, "sums_url": "https://dl.example/sums"})
    pins = Pins(programs=(listed, CTR), images=(PAUSE,))
    wanted = [pin.artifact for pin in pins]
    source = upstream.UpstreamSource(pins, mirror)
    source.check_trust([CTR.artifact])  # has a digest
    upstream.UpstreamSource(pins, mirror, insecure=True).check_trust(wanted)
    if not refused:
        source.check_trust(wanted)
        return
    with pytest.raises(UsageError, match="be trusted for 2 of 3 artifacts") as caught:
        source.check_trust(wanted)
    assert "--insecure-mirror" in caught.value.cure
    with pytest.raises(UsageError):
        source.obtain(PAUSE.artifact, Quiet())


@pytest.mark.parametrize("kind", [".tar.gz", ".zip"])
def test_an_endless_member_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    archive = packed(kind, {"ctr": bytes(5000)}, tmp_path)
    monkeypatch.setattr(unpack, "LARGEST", 4999)
    with pytest.raises(TransferError, match=r"'ctr' in .* is larger than"):
        unpack.members(archive, {"ctr": tmp_path / "ctr"})


def test_an_endless_header_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few compressed bytes could become a name of gigabytes, which tarfile reads whole."""
    archive = packed(".tar.gz", {"x" * 3000: b"", "ctr": b"program"}, tmp_path)
    assert unpack.members(archive, {"ctr": tmp_path / "ctr"}) == {"ctr"}
    monkeypatch.setattr(tars, "LARGEST_READ", 2048)
    with pytest.raises(TransferError, match="can't be unpacked") as caught:
        unpack.members(archive, {"ctr": tmp_path / "ctr"})
    assert "header" in caught.value.why


def test_a_mirror_that_does_not_exist_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="mirror"):
        upstream.UpstreamSource(Pins(), "/no/such/folder")


def test_where_it_would_ask_first(tmp_path: Path) -> None:
    pins = Pins(programs=(KUBELET,), images=(PAUSE,))
    both = [PAUSE.artifact, KUBELET.artifact]
    assert upstream.UpstreamSource(pins).probe_url(both) == "https://registry.k8s.io/v2/"
    assert upstream.UpstreamSource(pins).probe_url(both[1:]) == KUBELET.url
    mirror = upstream.UpstreamSource(pins, "https://m.example/pub/")
    assert mirror.probe_url(both) == "https://m.example/v2/"
    assert mirror.probe_url(both[1:]) == "https://m.example/pub/v1/kubelet"
    assert mirror.name == "mirror"
    folder = upstream.UpstreamSource(pins, str(tmp_path))
    assert folder.probe_url(both) == tmp_path / PAUSE.artifact.file
    assert folder.probe_url(both[1:]) == tmp_path / "kubelet"


def test_unpinned_artifacts_are_reported_before_downloads(tmp_path: Path) -> None:
    source = upstream.UpstreamSource(Pins(programs=(KUBELET,)))
    other = Program("kubelet", "v2", "linux")
    assert list(source.cannot([KUBELET.artifact, other])) == [other]
    with pytest.raises(NotFoundError, match=r"kubelet v2 \(linux\) can't be obtained"):
        source.obtain(other, Quiet())


def test_artifacts_verified_only_by_a_mirror_are_not_shared(tmp_path: Path) -> None:
    """Another's list of digests, beside another's file, says nothing of what the publisher has."""
    content = elf()
    listed = {"sha256": None, "sums_url": "https://dl.example/v1/kubelet.sha256"}
    pin = KUBELET.model_copy(update=listed)
    (tmp_path / "kubelet").write_bytes(content)
    (tmp_path / "kubelet.sha256").write_text(hashlib.sha256(content).hexdigest())
    mirror = upstream.UpstreamSource(Pins(programs=(pin,)), str(tmp_path))
    mirror.obtain(pin.artifact, Quiet())
    assert mirror.at_hand(pin.artifact)
    assert not upstream.UpstreamSource(Pins(programs=(pin,))).at_hand(pin.artifact)
    pinned = KUBELET.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    upstream.UpstreamSource(Pins(programs=(pinned,)), str(tmp_path)).obtain(pin.artifact, Quiet())
    assert upstream.UpstreamSource(Pins(programs=(pinned,))).at_hand(pin.artifact)  # its digest is winlab's own
    assert [upstream.UpstreamSource(Pins(programs=(one,))).pinned(pin.artifact) for one in (pin, pinned)] == [0, 1]
    assert (
        mirror.without_digest([pin.artifact]),
        upstream.UpstreamSource(Pins(programs=(pinned,))).without_digest([]),
    ) == (1, 0)


@pytest.mark.parametrize("place", ["http://plain.example/list", "http:///list", "//plain.example/list", "/list"])
def test_a_list_of_digests_stays_encrypted(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """It trusts a program only for where it comes from."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        if len(asked) == 1:
            return httpx.Response(302, headers={"location": place})
        return httpx.Response(200, text="0" * 64)

    client = web.client
    monkeypatch.setattr(web, "client", lambda: client(transport=httpx.MockTransport(answer)))
    source = upstream.UpstreamSource(Pins(), pause=0.0)
    if place.startswith("http:"):
        with pytest.raises(TransferError, match="can't be read") as caught:
            source._text("https://dl.example/kubelet.sha256")
        assert "from https to plain http" in caught.value.why
        assert asked == ["https://dl.example/kubelet.sha256"]
    else:
        assert source._text("https://dl.example/kubelet.sha256") == "0" * 64
        assert asked[1].startswith("https://")


def test_a_folder_brings_programs_and_is_checked(tmp_path: Path) -> None:
    content = elf(183)
    pin = KUBELET.model_copy(update={"sha256": hashlib.sha256(content).hexdigest()})
    (tmp_path / "kubelet").write_bytes(content)
    with pytest.raises(TransferError, match="has a wrong kubelet v1") as caught:
        upstream.UpstreamSource(Pins(programs=(pin,)), str(tmp_path)).obtain(pin.artifact, Quiet())
    assert "arm64" in caught.value.why
    (tmp_path / "kubelet").write_bytes(elf())
    with pytest.raises(TransferError, match=r"kubelet v1 \(linux\) can't be obtained from mirror") as caught:
        upstream.UpstreamSource(Pins(programs=(pin,)), str(tmp_path)).obtain(pin.artifact, Quiet())
    assert "should be" in caught.value.why
    assert not store.entries()


def test_several_keep_their_order_and_group() -> None:
    running: dict[str, int] = {}
    lock = threading.Lock()

    def one(artifact: Artifact, progress: Any) -> Obtained:
        assert isinstance(artifact, Program)
        with lock:
            running[artifact.version] = running.get(artifact.version, 0) + 1
            assert running[artifact.version] == 1  # of one file, one at a time
        progress.say("at it")
        with lock:
            running[artifact.version] -= 1
        return Obtained(artifact, Path("x"), ZERO, 1, "here")

    wanted = [Program(name, version, "linux") for name in "abc" for version in ("1", "2")]
    got = parallel.obtain([*wanted, wanted[0]], one, lambda artifact: artifact.version, Quiet())  # type: ignore[union-attr]
    assert [each.artifact for each in got] == [*wanted, wanted[0]]
    assert parallel.obtain([], one, str, Quiet()) == []


def test_the_first_failure_of_several_stops_the_others() -> None:
    begun: list[str] = []
    failing = threading.Event()

    def one(artifact: Artifact, progress: Any) -> Obtained:
        assert isinstance(artifact, Program)
        begun.append(artifact.name)
        if artifact.name == "bad":
            failing.set()
            raise TransferError("bad can't be fetched.")
        assert failing.wait(5)
        for _ in range(1000):
            progress.say("downloading")
            threading.Event().wait(0.01)
        raise AssertionError("nobody stopped it")

    wanted = [Program(name, "1", "linux") for name in ("good", "bad", *"0123456789")]
    with pytest.raises(TransferError, match="bad can't be fetched"):
        parallel.obtain(wanted, one, str, Quiet())
    assert len(begun) < len(wanted)
