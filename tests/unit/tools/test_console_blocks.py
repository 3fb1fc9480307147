"""Console blocks are read from a page, and outputs are compared by their shape."""

from __future__ import annotations

from pathlib import Path

import pytest
from console_page import PAGE

import console_blocks
from console_blocks import Command, commands, pattern


def test_a_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="line 2: the block does not begin with a command"):
        list(commands("```console\nhello\n```\n"))


def test_commands_have_their_lines_on_the_page() -> None:
    found = [(one.line, one.text) for one in commands(PAGE)]
    assert found[0] == (4, "name=world")
    assert found[2] == (8, "echo one\necho two")
    assert found[-1] == (24, "cat")


SAME = [
    (["took 3 s"], "took 12.5 s"),
    (["NAME   STATE"], "NAME STATE"),
    (["up after ..."], "up after 5 min 19 s"),
    (["a", "...", "z"], "a\nb\nc\nz"),
    (["a", "...", "z"], "a\nz"),
    (["..."], "a\nb"),
    (["a", "..."], "a\nb\nc"),
    (["a", "..."], "a"),
    (["10.77.0.11 (v1)"], "10.77.0.101 (v2)"),
]
OTHER = [
    (["took 3 s"], "took s"),
    (["a", "...", "z"], "a\nb"),
    (["a.b"], "axb"),
    (["a"], "a\nb"),
    (["up ... s"], "up 5\ns"),
]


@pytest.mark.parametrize(("lines", "printed"), SAME)
def test_an_output_of_the_same_shape_matches(lines: list[str], printed: str) -> None:
    assert pattern(lines).fullmatch(f"{printed}\n")


@pytest.mark.parametrize(("lines", "printed"), OTHER)
def test_an_output_of_another_shape_does_not(lines: list[str], printed: str) -> None:
    assert not pattern(lines).fullmatch(f"{printed}\n")


def test_blanks_around_lines_and_empty_lines_around_all_do_not_count() -> None:
    shown = Command(1, "x", ["", "NAME  STATE", "node-1 ..."])
    assert shown.problem(["  NAME   STATE  ", "  node-1   on", "", ""], 0) == ""
    assert shown.problem(["  NAME   STATE  ", "", "  node-1   on"], 0) != ""


def test_without_lines_nothing_is_compared() -> None:
    assert Command(1, "x").problem(["anything"], 0) == ""


def test_the_tutorial_has_commands_to_run() -> None:
    page = Path(console_blocks.__file__).parents[1] / "docs/tutorial.md"
    assert len(list(commands(page.read_text(encoding="utf-8")))) > 5
