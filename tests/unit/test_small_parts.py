from __future__ import annotations

import io
import struct
import zlib

import plans
import pytest
from rich.console import Console

from winlab.adapters.guests.base import command_line
from winlab.adapters.vm.domains import ppm_to_png
from winlab.cli import main, progress
from winlab.cli.common import Output
from winlab.design.plan import tags
from winlab.design.render import domain
from winlab.design.spec import sizes
from winlab.errors import GuestError, HostError, UsageError, WinlabError
from winlab.events import Event, Kind


@pytest.mark.parametrize(
    ("text", "mib"), [("2GiB", 2048), ("512", 512), (512, 512), ("1 TiB", 1 << 20), ("8g", 8192), ("7m", 7)]
)
def test_sizes(text: str | int, mib: int) -> None:
    assert sizes.parse_mib(text) == mib


@pytest.mark.parametrize("text", ["", "two", "2 parsecs", "-1", "1.5GiB", True, None, 1.5])
def test_sizes_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="size"):
        sizes.parse_mib(text)


def test_command_lines() -> None:
    assert command_line("linux", ["a b", "c"]) == "'a b' c"
    assert command_line("windows", ["cmd", "/c", "a b"]) == 'cmd /c "a b"'
    assert command_line("windows", ["echo a & echo b"]) == "echo a & echo b"


def test_tags_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plans.make(plans.TCG)
    for node in plan.nodes:
        tag = tags.read(domain.domain_xml(plan, node, "secret"))
        assert tag is not None
        assert (tag.lab, tag.node, tag.floating, tag.plan) == (plan.lab, node.name, node.floating, plan.digest)


@pytest.mark.parametrize(
    "xml",
    [
        "<domain/>",
        "<domain><metadata/></domain>",
        "<domain><metadata><x xmlns='urn:else'/></metadata></domain>",
        "<domain><metadata><w:node xmlns:w='urn:winlab:domain:1' lab='x'/></metadata></domain>",
    ],
)
def test_foreign_domains_have_no_tag(xml: str) -> None:
    assert tags.read(xml) is None


def test_png() -> None:
    pixels = bytes(range(2 * 3 * 3))
    png = ppm_to_png(b"P6\n2 3\n255\n" + pixels)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    start = png.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", png[start - 8 : start - 4])
    rows = zlib.decompress(png[start : start + length])
    assert (width, height) == (2, 3)
    assert b"".join(rows[y * 7 + 1 : y * 7 + 7] for y in range(3)) == pixels
    with pytest.raises(WinlabError, match="unknown format"):
        ppm_to_png(b"GIF89a")


def test_errors_say_all_they_know() -> None:
    error = HostError(
        "It broke.", why="Because.", cure="Mend it.", evidence="/log", causes=[GuestError("So did this.")]
    )
    text = main.explain(error)
    for part in ("It broke.", "why:", "Because.", "cure:", "Mend it.", "/log", "and: So did this."):
        assert part in text
    assert UsageError("x").exit_code == 2


def test_the_live_view_shows_what_runs_and_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; it hung once, since printing a line draws the view again."""
    out = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda **_: Console(file=out, force_terminal=True, width=100, legacy_windows=False)
    )
    with progress.shown(Output.TABLE) as tell:
        tell(Event(Kind.STARTED, "disk node-1"))
        tell(Event(Kind.PROGRESS, "boot node-1", "waiting for node-1", 5, 60))
        tell(Event(Kind.DONE, "disk node-1", seconds=2))
        tell(Event(Kind.SKIPPED, "network"))
        tell(Event(Kind.NOTE, "", "a hint"))
        tell(Event(Kind.FAILED, "boot node-1", "no", 61))
    for text in ("✓ disk node-1 (2 s)", "! a hint", "✗ boot node-1 (1 min 01 s)", "waiting for node-1"):
        assert text in out.getvalue()
    assert "network" not in out.getvalue()


def test_progress_lines() -> None:
    event = Event(Kind.PROGRESS, "boot node-1", "waiting", 75, 120, 0.5)
    assert progress.describe(event) == "boot node-1: waiting 50% (1 min 15 s, usually 2 min 00 s)"
    assert progress.clock(59.4) == "59 s"
