"""Recordings of sessions are kept in files, and drawn as animated SVGs."""

from __future__ import annotations

import pytest
from lxml import etree

from cast.__main__ import commands
from cast.picture import draw, shown
from cast.record import LONGEST, Cast

SVG = "{http://www.w3.org/2000/svg}"


def test_long_waits_are_shortened() -> None:
    cast = Cast()
    cast.add("a", 500)
    cast.add("b", 0.1)
    assert cast.events == [(LONGEST, "a"), (LONGEST + 0.1, "b")]


def test_a_long_command_is_shown_faster() -> None:
    cast = Cast()
    cast.play([(0.5, "a"), (0.5, "b")], within=2)
    assert cast.events == [(0.5, "a"), (1.0, "b")]
    cast.play([(500, "c"), (1, "d"), (2, "e")], within=0.3)
    assert cast.events[2:] == [(1.1, "c"), (1.2, "d"), (1.3, "e")]


def test_a_file_of_a_recording_is_read_as_it_was_written() -> None:
    cast = Cast(20, 3)
    cast.add("one\r\n", 0.5)
    cast.wait(2)
    assert Cast.read(cast.text()) == cast
    with pytest.raises(ValueError, match="only version 2"):
        Cast.read('{"version": 3}\n')


def test_a_picture_shows_each_row_while_it_is_there() -> None:
    cast = Cast(20, 3)
    cast.add("a <b>\r\n", 0.5)
    cast.add("\x1b[31mred\x1b[0m", 0.5)
    cast.add("\x1b[2K\rtwo", 1.0)
    cast.wait(1)
    spans = [("".join(text for _, text, _ in row).strip(), begin, end) for _, row, begin, end in shown(cast, cast.end)]
    assert spans == [("red", 1.0, 2.0), ("a <b>", 0.5, 3.0), ("two", 2.0, 3.0)]


def test_a_picture_is_svg_that_shows_its_last_screen_without_animations() -> None:
    cast = Cast(20, 3)
    cast.add("first", 0.5)
    cast.add("\x1b[2K\r\x1b[1;7mlast\x1b[0m", 0.5)
    cast.wait(1)
    picture = etree.fromstring(draw(cast).encode())
    rows = {row.get("id"): "".join(row.itertext()) for row in picture.iter(f"{SVG}g")}
    uses = {rows[use.get("href").lstrip("#")]: use.get("visibility") for use in picture.iter(f"{SVG}use")}
    assert uses == {"first": "hidden", "last": None}
    assert not list(picture.iter(f"{SVG}script"))


def test_the_session_has_commands() -> None:
    assert commands("# why\n\nwinlab status\n") == ["winlab status"]
