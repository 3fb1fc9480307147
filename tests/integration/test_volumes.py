"""Base volumes, which labs share, made by two winlabs at once."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NAME = "base-winlab-it-0123456789abcdef.iso"


@pytest.fixture
def content(host: None, tmp_path: Path) -> Iterator[Path]:
    from winlab.adapters.vm.connection import connected
    from winlab.adapters.vm.volumes import MARKER, StoragePool

    path = tmp_path / "content"
    path.write_bytes(os.urandom(64 << 20))
    yield path
    with connected() as conn:
        for name in (NAME, NAME + MARKER):
            StoragePool(conn).delete(name)


def test_the_second_waits_for_the_first(content: Path) -> None:
    from winlab.adapters.vm.connection import connected
    from winlab.adapters.vm.volumes import StoragePool

    barrier = threading.Barrier(2)
    said: list[str] = []

    def upload(_number: int) -> str:
        with connected() as conn:
            pool = StoragePool(conn)
            barrier.wait()
            pool.upload_base(NAME, content, lambda text, _fraction: said.append(text))
            assert pool.is_complete(NAME)
            return hashlib.sha256(pool.download(NAME, most=128 << 20)).hexdigest()

    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(upload, range(2)))
    assert found == {hashlib.sha256(content.read_bytes()).hexdigest()}
    assert any("is uploading it" in text for text in said)


def test_leftovers_of_a_killed_winlab_are_taken_over(content: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from winlab.adapters.vm import volumes
    from winlab.adapters.vm.connection import connected
    from winlab.adapters.vm.volumes import StoragePool

    monkeypatch.setattr(volumes, "ABANDONED", 2.0)
    with connected() as conn:
        pool = StoragePool(conn)
        half = content.with_name("half")
        half.write_bytes(content.read_bytes()[: 1 << 20])
        pool.upload(NAME, half)  # a volume without its marker
        assert not pool.is_complete(NAME)
        pool.upload_base(NAME, content, lambda _text, _fraction: None)
        assert pool.download(NAME, most=128 << 20) == content.read_bytes()


def test_a_volume_is_compared_with_a_file(content: Path) -> None:
    """Also where it breaks off at once: the connection is as good as before."""
    from winlab.adapters.vm.connection import connected
    from winlab.adapters.vm.volumes import StoragePool

    whole = content.read_bytes()
    with connected() as conn:
        pool = StoragePool(conn)
        pool.upload_base(NAME, content, lambda *_: None)
        other = content.with_name("other")
        for piece, same in (
            (whole, True),
            (b"\0" + whole[1:] if whole[0] else b"\1" + whole[1:], False),
            (whole[:-1], False),
            (whole + b"x", False),
            (whole, True),
        ):
            other.write_bytes(piece)
            assert pool.holds(NAME, other) is same
        pool.download_to(NAME, other, lambda _: None)
        assert other.read_bytes() == whole
