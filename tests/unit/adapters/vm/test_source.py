"""A file on its way into a volume: pieces, holes and digests."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from winlab.adapters.vm import source
from winlab.adapters.vm.source import CHUNK, Source

PAGE = 1 << 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A hole, data, a hole that takes two pieces, data, and a hole at the end."""
    made = tmp_path / "image"
    with made.open("wb") as file:
        for at, size in ((PAGE, CHUNK + PAGE), (40 * PAGE, PAGE)):
            file.seek(at)
            file.write(os.urandom(size))
        file.truncate(60 * PAGE)
    return made


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "HOLE", 20 * PAGE)
    monkeypatch.setattr(source, "ZEROS", bytes(1000))


def joined(pieces: list[bytes | int]) -> bytes:
    return b"".join(bytes(piece) if isinstance(piece, int) else piece for piece in pieces)


def test_pieces_are_the_file_and_holes_are_not_read(path: Path) -> None:
    made = Source(path)
    pieces = list(made.pieces())
    assert joined(pieces) == path.read_bytes()
    assert [piece for piece in pieces if isinstance(piece, int)] == [PAGE, 20 * PAGE, 14 * PAGE, 19 * PAGE]
    assert max(len(piece) for piece in pieces if isinstance(piece, bytes)) == CHUNK
    assert (made.at, made.part) == (made.size, 1.0)
    assert made.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("place", [0, 1, PAGE + 5, CHUNK + 2 * PAGE, 30 * PAGE + 7, 60 * PAGE])
def test_it_resumes_at_any_place(path: Path, place: int) -> None:
    content, made = path.read_bytes(), Source(path)
    assert joined(list(made.pieces(place))) == content[:place]
    assert (made.at, made.sha256) == (place, hashlib.sha256(content[:place]).hexdigest())
    assert joined(list(made.pieces())) == content[place:]
    assert made.sha256 == hashlib.sha256(content).hexdigest()


def test_no_more_than_the_file_is_read(path: Path) -> None:
    made = Source(path)
    assert joined(list(made.pieces(1 << 60))) == path.read_bytes()
    assert made.at == made.size


def test_a_file_that_becomes_shorter_ends_where_it_ends(path: Path) -> None:
    made = Source(path)
    pieces = made.pieces()
    next(pieces)
    os.truncate(path, PAGE + 10)
    assert len(joined(list(pieces))) == 10
    assert made.at == PAGE + 10


def test_an_empty_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    made = Source(tmp_path / "empty")
    assert list(made.pieces()) == []
    assert made.part == 1.0
