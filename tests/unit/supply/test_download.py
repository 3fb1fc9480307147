"""The parts of a download that need no server."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from winlab.design.catalog.recipes import Download
from winlab.errors import HostError, NotFoundError, TransferError, UsageError
from winlab.events import Quiet
from winlab.supply import download

URL = "https://publisher.example/a/b/image.qcow2?x=1"


def test_no_mirror() -> None:
    assert download.rewrite(URL, None) == download.rewrite(URL, "") == URL


@pytest.mark.parametrize("mirror", ["http://mirror.example/pub", "http://mirror.example/pub/"])
def test_a_mirror_replaces_scheme_and_host(mirror: str) -> None:
    assert download.rewrite(URL, mirror) == "http://mirror.example/pub/a/b/image.qcow2"


def test_a_folder_holds_the_file_by_its_base_name(tmp_path: Path) -> None:
    assert download.rewrite(URL, str(tmp_path)) == tmp_path / "image.qcow2"


@pytest.mark.parametrize("mirror", ["ftp://mirror.example", "/no/such/folder", "mirror.example"])
def test_other_mirrors_are_refused(mirror: str) -> None:
    with pytest.raises(UsageError, match="mirror"):
        download.rewrite(URL, mirror)


def test_space_is_checked_before_the_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    download.check_space(tmp_path, 1_000_000)
    with pytest.raises(HostError, match="space") as caught:
        download.check_space(tmp_path, 5_000_000)
    assert "5 MB are needed and 1 MB are free" in caught.value.why


@pytest.mark.parametrize("content", [b"", b"other"])
def test_a_local_file_whose_size_says_nothing(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like those of /proc: their size is 0, and reading gives bytes."""
    source = Path("/proc/self/comm") if content else tmp_path / "empty"
    if not content:
        source.touch()
    wanted, told = Download(url=URL, sha256="0" * 64), Fractions()
    with pytest.raises(TransferError, match="not the published image"):
        download.fetch(wanted, tmp_path / "x", told, part=tmp_path / "x.part", source=source)
    assert all(one is not None and one <= 1 for one in told.every)


class Fractions:
    """The progress, as it was reported."""

    def __init__(self) -> None:
        self.every: list[float | None] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.every.append(fraction)


def test_a_local_file_with_an_endless_name(tmp_path: Path) -> None:
    wanted = Download(url=URL, sha256="0" * 64)
    with pytest.raises(NotFoundError, match="There is no file") as caught:
        download.fetch(wanted, tmp_path / "x", Quiet(), part=tmp_path / "x.part", source=tmp_path / ("a" * 300))
    assert "too long" in caught.value.why


CLIENT = httpx.Client


class Endless(httpx.SyncByteStream):
    """A body without a length."""

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(1000):
            yield bytes(1000)


def fetch(monkeypatch: pytest.MonkeyPatch, folder: Path, **headers: str) -> Path:
    """Fetch a file of unknown size; where its part would be."""
    client = CLIENT
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, stream=Endless()))
    monkeypatch.setattr(httpx, "Client", lambda **_: client(transport=transport))
    part = folder / "x.part"
    download.fetch(Download(url=URL, sha256="0" * 64), folder / "x", Quiet(), part=part, pause=0)
    return part


def test_an_endless_file_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "LARGEST", 10_000)
    with pytest.raises(TransferError, match="larger than it can be"):
        fetch(monkeypatch, tmp_path)
    with pytest.raises(TransferError, match="larger than it can be"):
        fetch(monkeypatch, tmp_path, **{"content-length": "10001"})
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_keeps_nothing_of_an_endless_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: object, block: bytes) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(download._Digests, "add", full)
    with pytest.raises(HostError, match="no space left"):
        fetch(monkeypatch, tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(HostError, match="no space left"):  # the rest can still be downloaded
        fetch(monkeypatch, tmp_path, **{"content-length": "2000"})
    assert (tmp_path / "x.part").exists()
