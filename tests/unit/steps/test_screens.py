"""The series of a machine's screens: small pictures, only what changed, and not too many."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
import runs

from winlab.adapters.vm import screen
from winlab.lab_folder import LabFolder
from winlab.steps import screens

WIDTH, HEIGHT = 640, 40


def ppm(width: int = WIDTH, height: int = HEIGHT, lit: int = 0, colour: bytes = b"\xff\xff\xff") -> bytes:
    """A black screen whose first points are lit."""
    return b"P6\n%d %d\n255\n" % (width, height) + colour * lit + bytes(3 * (width * height - lit))


def points(png: bytes) -> tuple[int, int, list[list[int]]]:
    """Width, height and the shades of a picture's points, read as the PNG specification says."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, header = 8, b"", ()
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, body = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        if kind == b"IHDR":
            header = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    width, height, depth, grey, *_ = header
    assert (depth, grey) == (4, 0)
    raw, row = zlib.decompress(data), 1 + width // 2
    lines = [raw[y * row + 1 : (y + 1) * row] for y in range(height)]
    return width, height, [[part for byte in line for part in (byte >> 4, byte & 15)] for line in lines]


@pytest.mark.parametrize(
    ("colour", "shade"), [(b"\xff\xff\xff", 15), (b"\xff\0\0", 3), (b"\0\xff\0", 7), (b"\0\0\xff", 3), (b"\0\0\0", 0)]
)
def test_a_picture_has_the_screen_s_shades(colour: bytes, shade: int) -> None:
    picture = screen.reduced(ppm(6, 2, 3, colour))
    assert picture is not None
    assert points(picture.png()) == (6, 2, [[shade] * 3 + [0] * 3, [0] * 6])


def test_a_large_screen_is_halved_and_an_odd_one_cut() -> None:
    large, odd = screen.reduced(ppm(1600, 900)), screen.reduced(ppm(721, 3))
    assert large is not None
    assert odd is not None
    assert points(large.png())[:2] == (800, 450)
    assert points(odd.png())[:2] == (720, 3)


@pytest.mark.parametrize(
    "other", [b"", b"P6\n9 9\n255\n", b"\x89PNG\r\n\x1a\n", b"P6\n0 0\n255\n", b"P6\n99999999 1\n255\nx"]
)
def test_malformed_screens_make_no_picture(other: bytes) -> None:
    assert screen.reduced(other) is None
    assert screen.signature(other)[:1] in (b"", b"\0")


class Kept:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
        self.clock = runs.clock(monkeypatch, screens)
        folder = LabFolder("lab")
        folder.make()
        self.series = screens.Series(folder, "node-1")
        self.folder = screens.folder(folder, "node-1")
        self.number = 0
        monkeypatch.setattr(screens, "datetime", self)

    def now(self, _zone: object) -> Kept:
        self.number += 1
        return self

    def __format__(self, _how: str) -> str:
        return f"{self.number:04}"

    def add(self, lit: int, seconds: float = 60) -> None:
        self.clock.now += seconds
        self.series.add(ppm(lit=lit))

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Kept:
    return Kept(monkeypatch, tmp_path)


def test_one_picture_a_minute_and_only_after_changes(kept: Kept) -> None:
    kept.add(0)
    kept.add(0)
    kept.add(4)  # a cursor
    kept.add(400)
    kept.add(800, seconds=20)  # too soon
    kept.add(800, seconds=40)
    assert kept.names == ["0001.png", "0002.png", "0003.png"]


def test_no_one_else_can_read_them(kept: Kept) -> None:
    kept.add(0)
    (path,) = kept.folder.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept.folder.stat().st_mode & 0o777 == 0o700


def test_the_oldest_pictures_are_removed(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(screens.MOST + 5):
        kept.add(400 * (number % 2))
    assert len(kept.names) == screens.MOST
    assert kept.names[-1] == f"{screens.MOST + 5:04}.png"
    monkeypatch.setattr(screens, "BYTES", 3 * (kept.folder / kept.names[-1]).stat().st_size)
    kept.add(0 if kept.number % 2 == 0 else 400)
    assert len(kept.names) in (2, 3)


def test_a_full_disk_ends_no_wait(kept: Kept) -> None:
    kept.folder.parent.mkdir()
    kept.folder.write_text("a file where the folder should be")
    kept.add(0)


def test_pictures_of_an_earlier_machine_are_removed_with_it(kept: Kept) -> None:
    kept.add(0)
    screens.forget(LabFolder("lab"), "node-1")
    assert not kept.folder.exists()
    screens.forget(LabFolder("lab"), "node-1")
