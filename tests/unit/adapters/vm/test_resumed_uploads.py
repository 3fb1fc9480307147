"""Base volumes on another host: what is there of an interrupted upload is checked by that host, and continued."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import libvirt
import pytest
from libvirt_pool import Host, Stream, Volume

from winlab import locks, run
from winlab.adapters.remote import Remote
from winlab.adapters.vm import far_end
from winlab.adapters.vm.volumes import CLAIM, MARKER, StoragePool
from winlab.errors import HostError, TransferError
from winlab.stopping import Stopped

NAME = "base-x-1.qcow2"
DATA = 1_000_000


def lost() -> libvirt.libvirtError:
    made = libvirt.libvirtError("client socket is closed")
    made.err = (libvirt.VIR_ERR_INTERNAL_ERROR, libvirt.VIR_FROM_RPC, "closed", 2, "", "", "", 0, 0)
    return made


class Far(Host):
    """A pool of another host. Streams begin at an offset and take holes. ``sent`` are the bytes that came."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = 0
        self.is_off = False
        self.computed: list[int] = []  # of how many bytes it computed digests
        self.asked: list[int] = []  # as it was asked
        self.spoils = False  # its disk changes what is written

    def getURI(self) -> str:
        return "qemu+ssh://ann@h2/system?command=/x"

    def newStream(self, _: int) -> Stream:
        return FarStream(self)

    def put(self, name: str, content: bytes = b"") -> None:
        self.volumes[name] = FarVolume(self, name)
        self.volumes[name].content[:] = content

    def _find(self, name: str) -> Volume:
        if self.is_off:
            raise lost()
        return super()._find(name)

    def sha256(self, there: Remote, _pool: str, name: str, length: int) -> str:
        assert str(there) == "ann@h2"
        content = self.volumes[name].content[: length or None]
        self.computed.append(len(content))
        self.asked.append(length)
        return hashlib.sha256(content + (b"!" if self.spoils else b"")).hexdigest()


class FarVolume(Volume):
    def upload(self, stream: Stream, *where: int) -> None:
        stream.volume, stream.at = self, where[0]


class FarStream(Stream):
    def __init__(self, host: Far) -> None:
        super().__init__(host.on_send)
        self.host = host

    def send(self, data: bytes) -> int:
        sent = super().send(data[:100_000])
        self.host.sent += sent
        return sent

    def sendHole(self, length: int, _flags: int) -> None:
        assert self.volume is not None
        self.at += length
        del self.volume.content[self.at :]  # as libvirt's daemon does
        self.volume.content.extend(bytes(self.at - len(self.volume.content)))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Far:
    made = Far()
    monkeypatch.setattr(far_end, "sha256", made.sha256)
    monkeypatch.setattr(StoragePool, "flush", lambda _pool: None)
    return made


@pytest.fixture
def pool(host: Far) -> StoragePool:
    return StoragePool(cast(Any, host))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(bytes(range(250)) * (DATA // 250))
    with path.open("r+b") as file:
        file.truncate(3 * DATA)  # a hole at the end
    return path


def upload(pool: StoragePool, source: Path) -> list[str]:
    said: list[str] = []
    pool.upload_base(NAME, source, lambda text, _: said.append(text))
    return said


def half(host: Far, content: bytes) -> None:
    """What an upload leaves whose process was killed."""
    host.put(NAME, content)
    host.put(NAME + CLAIM, " ".join([*locks.signature().split()[:3], "1"]).encode())


def test_only_the_rest_is_sent_and_the_host_verifies_all_of_it(pool: StoragePool, host: Far, source: Path) -> None:
    whole = source.read_bytes()
    half(host, whole[:600_000])
    said = upload(pool, source)
    assert bytes(host.volumes[NAME].content) == whole
    assert DATA - 600_000 <= host.sent < DATA - 600_000 + 8192  # and a claim, a marker, the end of a page
    assert host.computed == [600_000, 3 * DATA]
    assert any("ann@h2 computes the digest" in text for text in said)
    assert "resuming at 0 of 2 MiB" in said
    assert pool.is_complete(NAME)
    assert pool.uploaded_digest(NAME) == hashlib.sha256(whole).hexdigest()


def test_a_volume_that_was_there_stays_if_the_image_is_not_accepted(pool: StoragePool, host: Far, source: Path) -> None:
    """It may have been complete before a power cut of its host, with disks over it."""
    half(host, source.read_bytes()[:600_000])

    def refuse(_sha256: str) -> None:
        raise TransferError("it has changed")

    with pytest.raises(TransferError, match="it has changed"):
        pool.upload_base(NAME, source, lambda *_: None, refuse)
    assert list(host.volumes) == [NAME]


@pytest.mark.parametrize("left", [b"x" * 600_000, b"x" * 4 * DATA])
def test_what_is_of_another_image_is_replaced(pool: StoragePool, host: Far, source: Path, left: bytes) -> None:
    half(host, left)
    upload(pool, source)
    assert bytes(host.volumes[NAME].content) == source.read_bytes()
    assert pool.is_complete(NAME)
    assert host.sent >= DATA


def test_an_upload_that_is_stopped_is_resumed(pool: StoragePool, host: Far, source: Path) -> None:
    def stop(_text: str, part: float | None) -> None:
        if part and part > 0.1:
            raise Stopped

    with pytest.raises(Stopped):
        pool.upload_base(NAME, source, stop)
    assert list(host.volumes) == [NAME]  # without a claim
    there = len(host.volumes[NAME].content)
    assert 0 < there < DATA
    upload(pool, source)
    assert host.computed[0] == there
    assert bytes(host.volumes[NAME].content) == source.read_bytes()


def test_a_refused_write_leaves_nothing(pool: StoragePool, host: Far, source: Path) -> None:
    """A full disk must not stay full."""

    def full() -> None:
        if NAME in host.volumes and len(host.volumes[NAME].content) > 100_000:
            raise libvirt.libvirtError("No space left on device")

    host.on_send = full
    with pytest.raises(Exception, match="upload to the volume"):
        upload(pool, source)
    assert host.volumes == {}


def test_the_same_process_resumes_after_its_connection_was_lost(pool: StoragePool, host: Far, source: Path) -> None:
    """Its own claim is still there, and its process lives."""

    def cut() -> None:
        if NAME in host.volumes and len(host.volumes[NAME].content) > 300_000:
            host.is_off = True
            raise lost()

    host.on_send = cut
    with pytest.raises(HostError, match="lost") as caught:
        upload(pool, source)
    assert "same command again" in caught.value.cure
    assert sorted(host.volumes) == [NAME, NAME + CLAIM]
    host.is_off, host.on_send = False, lambda: None
    upload(pool, source)
    assert host.computed[0] > 300_000
    assert sorted(host.volumes) == [NAME, NAME + MARKER]


def test_other_content_at_the_far_end_gets_no_marker(pool: StoragePool, host: Far, source: Path) -> None:
    host.spoils = True
    with pytest.raises(TransferError, match="not what was uploaded"):
        upload(pool, source)
    assert host.volumes == {}


def test_a_volume_that_only_lost_its_marker_is_not_sent_again(pool: StoragePool, host: Far, source: Path) -> None:
    upload(pool, source)
    del host.volumes[NAME + MARKER]
    before = host.sent
    upload(pool, source)
    assert host.sent - before < 1000
    assert pool.is_complete(NAME)


def test_the_host_itself_compares_and_digests(pool: StoragePool, host: Far, source: Path) -> None:
    upload(pool, source)
    assert pool.holds(NAME, source)
    assert pool.digest(NAME, lambda _: None) == pool.uploaded_digest(NAME)
    assert host.asked[-1] == 3 * DATA  # a host has time in proportion
    source.write_bytes(b"y" * 3 * DATA)
    assert not pool.holds(NAME, source)


@pytest.mark.parametrize(
    "marker", [b"[" * 4000, b'{"size": 1e999}', b'{"size": "3000000"}', b"[]", b'{"size": ' + b"9" * 3000 + b"}"]
)
def test_a_strange_marker_verifies_nothing(pool: StoragePool, host: Far, source: Path, marker: bytes) -> None:
    host.put(NAME, source.read_bytes())
    host.put(NAME + MARKER, marker)
    assert not pool.is_complete(NAME)
    assert pool.uploaded_digest(NAME) == ""


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("a" * 64 + "  -\n", True),
        ("error: no such volume\nfailed\n" + "a" * 64 + "  -\n", False),
        ("a" * 63 + "  -\n", False),
        ("", False),
    ],
)
def test_only_a_digest_is_taken_for_one(monkeypatch: pytest.MonkeyPatch, said: str, fits: bool) -> None:
    calls: list[list[str]] = []

    def watched(words: list[str], **_: object) -> Any:
        calls.append(words)
        return SimpleNamespace(stdout=said)

    monkeypatch.setattr(run, "watched", watched)
    there = Remote("h2", "ann")
    if fits:
        assert far_end.sha256(there, "winlab", "base-'x", 5) == "a" * 64
        assert "sha256sum" in calls[0][-1]
        return
    with pytest.raises(HostError, match="can't compute") as caught:
        far_end.sha256(there, "winlab", "base-x", 5)
    assert caught.value.why == said.strip()
