"""Tables: complete, and no wider than the terminal, in every kind of output."""

from __future__ import annotations

import io

import pytest
from commands import ran

from winlab.cli import common, glyphs, table

COLUMNS = ["NODE", "STATE", "ADDRESS", "NOTES"]
NOTE = "does not answer: the ssh connection timed out; own kubelet.exe since 12:54"
ROWS = [["controller-1", "running", "10.77.0.11", ""], ["node-1", "off", "10.77.0.101", NOTE]]


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def shown(room: int | None, **more: tuple[str, ...]) -> list[str]:
    return ["".join(line).rstrip() for line in table.lines(COLUMNS, ROWS, room, **more)]  # type: ignore[arg-type]


def test_a_table_is_as_wide_as_its_contents() -> None:
    for room in (None, 200):
        assert shown(room) == [
            "NODE          STATE    ADDRESS      NOTES",
            "controller-1  running  10.77.0.11",
            f"node-1        off      10.77.0.101  {NOTE}",
        ]


@pytest.mark.parametrize("room", [80, 60, 40, 20])
def test_a_table_fits_its_terminal_and_nothing_is_cut(room: int) -> None:
    lines = shown(room)
    assert all(len(line) <= room for line in lines), lines
    assert all(part in " ".join(lines) for part in NOTE.split() if len(part) < 6)


def test_columns_are_dropped_only_if_there_is_no_room() -> None:
    assert shown(80, drop=("ADDRESS",))[0].split() == ["NODE", "STATE", "ADDRESS", "NOTES"]
    assert shown(50, drop=("ADDRESS",))[0].split() == ["NODE", "STATE", "NOTES"]
    assert shown(50, drop=("ADDRESS",))[2] == "node-1        off      does not answer: the ssh"


def test_a_row_becomes_a_block_on_a_narrow_terminal() -> None:
    lines = shown(30)
    assert lines[:4] == ["NODE     controller-1", "STATE    running", "ADDRESS  10.77.0.11", "NOTES"]
    assert lines[4] == ""


def test_empty_columns_and_details_are_left_out() -> None:
    assert "NOTES" not in "".join("".join(line) for line in table.lines(COLUMNS, ROWS[:1], 80))
    assert "ADDRESS" not in shown(None, details=("ADDRESS",))[0]
    assert ["".join(line).split() for line in table.lines(["A", "B"], [])] == [["A", "B"]]


def test_a_terminal_shows_red_for_what_is_bad(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    common.print_table(COLUMNS, ROWS)
    text = capsys.readouterr().out
    assert "\x1b[31moff" in text
    assert text.count("\x1b[31m") == 1
    monkeypatch.setenv("NO_COLOR", "1")
    common.print_table(COLUMNS, ROWS)
    assert "\x1b" not in capsys.readouterr().out


def test_a_pipe_gets_plain_rows(capsys: pytest.CaptureFixture[str]) -> None:
    common.print_table(COLUMNS, ROWS, drop=("ADDRESS",))
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert text.splitlines()[2] == f"node-1        off      10.77.0.101  {NOTE}"


def test_the_user_gets_all_columns_with_output_wide() -> None:
    short = ran("spec", "explain", "workers.os")
    assert short.exit_code == 0
    wide = ran("spec", "explain", "workers.os", "--output", "wide")
    assert wide.exit_code == 0
    assert wide.stdout == short.stdout
    assert not table.wide.get() or ran("spec", "explain", "workers.os").stdout == short.stdout


@pytest.mark.parametrize(("encoding", "locale"), [("latin-1", ""), ("ascii", ""), ("utf-8", "C"), ("utf-8", "POSIX")])
def test_symbols_have_lookalikes_where_they_cant_be_shown(
    monkeypatch: pytest.MonkeyPatch, encoding: str, locale: str
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("LC_ALL", locale)
    common.say("✓ volumes … → done")
    common.print_table(["", "CHECK"], [["✗", "memory"], ["✓", "disk …"]])
    stream.flush()
    lines = raw.getvalue().decode("ascii").splitlines()
    assert lines == ["+ volumes ... -> done", "   CHECK", "x  memory", "+  disk ..."]


def test_a_terminal_with_unicode_gets_the_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert glyphs.fit("✓", stream) == "✓"
    monkeypatch.setenv("LC_ALL", "C")
    assert glyphs.fit("✓", stream) == "+"
