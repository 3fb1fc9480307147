"""Commands of pages and of recordings really run: in a shell, and in a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_page import PAGE

from cast.picture import shown
from cast.record import Cast, record
from console_blocks import check


def test_a_page_is_run_in_one_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert check(page) == 0
    assert "6 commands do what the page shows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("$ echo hullo\nhello", "2: its output differs from: \nhello"),
        ("$ true\n$ false", "3: exit code 1 instead of 0"),
        ("$ exit 3", "2: exit code 3 instead of 0"),
        ("$ true\n(exit code 4)", "2: exit code 0 instead of 4"),
        ("$ printf 'a\\nb\\n'\na", "2: its output differs from: \na"),
    ],
)
def test_the_first_difference_ends_the_run(
    block: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{block}\n$ echo not reached\n```\n")
    assert check(page) == 1
    printed = capsys.readouterr()
    assert printed.err == f"{page}:{problem}\n"
    assert "not reached" not in printed.out


def last_screen(cast: Cast) -> list[str]:
    """The rows that are there at the end."""
    rows = [(line, row) for line, row, _, until in shown(cast, cast.end) if until >= cast.end]
    return ["".join(text for _, text, _ in row).rstrip() for _, row in sorted(rows)]


def test_commands_run_in_a_terminal_and_are_shown_as_typed() -> None:
    cast, code = record(["test -t 0 && test -t 1 && tput cols", "printf 'ä\\rb\\n'"], columns=40, rows=5)
    assert code == 0
    assert "40\r\n" in "".join(text for _, text in cast.events)
    assert last_screen(cast) == ["$ printf 'ä\\rb\\n'", "b"]


def test_a_command_that_fails_ends_the_recording() -> None:
    cast, code = record(["exit 3", "echo not reached"])
    assert code == 3
    assert "reached" not in "".join(text for _, text in cast.events)
