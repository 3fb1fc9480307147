"""Base volumes: complete only with a marker that fits, and made by one winlab at a time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from libvirt_pool import Host

from winlab import locks, stopping
from winlab.adapters.vm import volumes
from winlab.adapters.vm.volumes import CLAIM, MARKER, StoragePool
from winlab.errors import ConflictError, TransferError

NAME = "base-x-1.iso"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[float, Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when in [when for when in self.at if when <= self.now]:
            self.at.pop(when)()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    for module in (volumes, stopping):
        monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def pool(host: Host, clock: Clock) -> StoragePool:
    return StoragePool(cast(Any, host))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"0123456789" * 100_000)
    return path


def upload(pool: StoragePool, source: Path) -> list[str]:
    said: list[str] = []
    pool.upload_base(NAME, source, lambda text, _: said.append(text))
    return said


def test_a_base_is_on_disk_before_it_has_a_marker(
    pool: StoragePool, host: Host, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a marker would pass a volume with holes as whole."""
    marked: list[bool] = []
    monkeypatch.setattr(os, "sync", lambda: marked.append(pool.is_complete(NAME)))
    upload(pool, source)
    pool.restore_base(NAME, source, lambda *_: None)
    assert marked == [False, False]
    assert pool.is_complete(NAME)


def test_a_marker_says_size_and_digest(pool: StoragePool, host: Host, source: Path) -> None:
    upload(pool, source)
    assert pool.is_complete(NAME)
    assert json.loads(host.volumes[NAME + MARKER].content) == {
        "size": 1_000_000,
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
    }
    assert sorted(host.volumes) == [NAME, NAME + MARKER]
    upload(pool, source)
    assert host.log.count(NAME) == 1


def test_content_that_is_not_accepted_stays_nowhere(pool: StoragePool, host: Host, source: Path) -> None:
    """An image is compared while it is uploaded: reading it twice takes as long as uploading it."""
    asked: list[str] = []

    def refuse(sha256: str) -> None:
        asked.append(sha256)
        raise TransferError("it has changed")

    with pytest.raises(TransferError, match="it has changed"):
        pool.upload_base(NAME, source, lambda *_: None, refuse)
    assert host.volumes == {}
    pool.upload_base(NAME, source, lambda *_: None, asked.append)
    assert asked == [hashlib.sha256(source.read_bytes()).hexdigest()] * 2
    assert pool.is_complete(NAME)


def test_a_volume_that_only_lost_its_marker_is_neither_waited_for_nor_replaced(
    pool: StoragePool, host: Host, source: Path, clock: Clock
) -> None:
    """ux N6: 'another winlab may be uploading it' for a minute, and then a new upload under disks in use."""
    upload(pool, source)
    del host.volumes[NAME + MARKER]
    assert upload(pool, source) == []
    assert pool.is_complete(NAME)
    assert pool.uploaded_digest(NAME) == hashlib.sha256(source.read_bytes()).hexdigest()
    assert (clock.now, host.log.count(NAME)) == (0, 1)


@pytest.mark.parametrize("there", [b"", b"of before"])
def test_a_volume_without_a_marker_stays_if_the_image_is_not_accepted(
    pool: StoragePool, host: Host, source: Path, clock: Clock, there: bytes
) -> None:
    """Disks may be based on it, whatever has become of the image in the cache."""
    upload(pool, source)
    del host.volumes[NAME + MARKER]
    host.volumes[NAME].content[: len(there)] = there

    def refuse(_sha256: str) -> None:
        raise TransferError("it has changed")

    with pytest.raises(TransferError, match="it has changed"):
        pool.upload_base(NAME, source, lambda *_: None, refuse)
    assert bytes(host.volumes[NAME].content[: len(there)]) == there
    assert host.log.count(NAME) == 1
    assert not pool.is_complete(NAME)


def test_a_truncated_volume_is_not_complete(pool: StoragePool, host: Host, source: Path, clock: Clock) -> None:
    """A power cut kept the marker and not all of the data."""
    upload(pool, source)
    del host.volumes[NAME].content[500_000:]
    assert not pool.is_complete(NAME)
    upload(pool, source)
    assert pool.is_complete(NAME)
    assert bytes(host.volumes[NAME].content) == source.read_bytes()


def test_a_marker_of_an_earlier_version_is_valid(pool: StoragePool, host: Host, source: Path) -> None:
    host.put(NAME, b"content")
    host.put(NAME + MARKER)
    assert pool.is_complete(NAME)
    upload(pool, source)
    assert host.log == []


def test_a_marker_without_its_volume_makes_nothing_complete(pool: StoragePool, host: Host, source: Path) -> None:
    """It was deleted manually; then winlab is killed in the middle of the next upload."""
    host.put(NAME + MARKER)

    def killed() -> None:
        if NAME in host.volumes:
            raise KeyboardInterrupt

    host.on_send = killed
    with pytest.raises(KeyboardInterrupt):
        upload(pool, source)
    assert NAME + MARKER not in host.volumes
    host.put(NAME, b"half")
    assert not pool.is_complete(NAME)


def test_leftovers_of_a_killed_winlab_are_taken_over_at_once(
    pool: StoragePool, host: Host, source: Path, clock: Clock
) -> None:
    words = locks.signature().split()
    host.put(NAME, b"half")
    host.put(NAME + CLAIM, " ".join([*words[:3], "1"]).encode())  # another process had this id
    upload(pool, source)
    assert pool.is_complete(NAME)
    assert clock.now == 0
    assert NAME + CLAIM not in host.volumes


def test_a_stopped_winlab_is_waited_for(pool: StoragePool, host: Host, source: Path, clock: Clock) -> None:
    """Its upload stands still for longer than anyone would wait; it may resume at any time."""
    host.put(NAME, b"half")
    host.put(NAME + CLAIM, locks.signature().encode())

    def ends() -> None:
        host.volumes[NAME].content[:] = b"whole"
        host.put(NAME + MARKER, json.dumps({"size": 5}).encode())
        del host.volumes[NAME + CLAIM]

    clock.at[10 * volumes.ABANDONED] = ends
    said = upload(pool, source)
    assert bytes(host.volumes[NAME].content) == b"whole"
    assert f"process {locks.signer(locks.signature())}" in said[0]


@pytest.mark.parametrize("claim", [None, b"", b"elsewhere boot 1 1"])
def test_without_a_claim_of_this_host_growth_decides(
    pool: StoragePool, host: Host, source: Path, clock: Clock, claim: bytes | None
) -> None:
    host.put(NAME, b"half")
    if claim is not None:
        host.put(NAME + CLAIM, claim)
    clock.at[volumes.ABANDONED - 5] = lambda: host.volumes[NAME].content.extend(b"more")
    upload(pool, source)
    assert pool.is_complete(NAME)
    assert clock.now >= 2 * volumes.ABANDONED - 5


def test_a_volume_without_our_claim_is_not_marked(pool: StoragePool, host: Host, source: Path, clock: Clock) -> None:
    """The claim vanished while this winlab uploaded: someone deleted it, and has replaced the volume."""
    lost: list[bool] = []

    def lose() -> None:
        if NAME in host.volumes and not lost:
            lost.append(True)
            del host.volumes[NAME + CLAIM]
            host.put(NAME, b"theirs")

    host.on_send = lose
    upload(pool, source)
    assert host.log.count(NAME) == 2  # made again, under a claim that stayed
    assert pool.is_complete(NAME)
    assert bytes(host.volumes[NAME].content) == source.read_bytes()


def test_an_unclaimed_volume_is_abandoned(pool: StoragePool, host: Host) -> None:
    host.put(NAME, b"half")
    assert pool.is_abandoned(NAME)
    host.put(NAME + CLAIM, locks.signature().encode())
    assert not pool.is_abandoned(NAME)


DISK = "lab.node-1.disk.qcow2"


def test_a_base_that_is_pruned_while_a_disk_is_made_over_it(pool: StoragePool, host: Host, source: Path) -> None:
    """Whichever comes first, no disk is left over a volume that is gone."""
    upload(pool, source)
    host.created = lambda name: name == DISK and pool.retire(NAME, lambda: False)  # it does not see the disk yet
    with pytest.raises(ConflictError, match="was removed") as caught:
        pool.create_disk(DISK, 1, NAME)
    assert "same command again" in caught.value.cure
    assert host.volumes == {}


def test_a_base_with_a_new_disk_over_it_stays(pool: StoragePool, host: Host, source: Path) -> None:
    upload(pool, source)
    host.deleted = lambda name: name == NAME + MARKER and host.put(DISK)
    assert not pool.retire(NAME, lambda: DISK in host.volumes)
    host.deleted = lambda _: None
    assert pool.is_complete(NAME)
    del host.volumes[DISK]
    assert pool.retire(NAME, lambda: DISK in host.volumes)
    assert host.volumes == {}
