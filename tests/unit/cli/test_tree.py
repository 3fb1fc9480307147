"""Help pages: one screen for the command, a page of 80 columns for each command, examples that can be typed."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import typer
from commands import ran

from winlab.cli import app, main, pages, tree
from winlab.cli.tree import FOREIGN
from winlab.cli.verbatim import Verbatim

MAIN: Any = typer.main.get_command(main.app)
ON_ONE_SCREEN = 50  # lines
LONGEST = {"create": 65}  # lines; the page that describes where things come from
OTHERS = 50


ALL = {pages.typed(one): one for one in pages.contexts(MAIN, "winlab")}


def test_the_front_page_fits_one_screen() -> None:
    lines = ran("--help").stdout.splitlines()
    assert 24 <= len(lines) <= ON_ONE_SCREEN
    assert max(map(len, lines)) <= pages.WIDTH
    assert sum(line.startswith("  winlab ") for line in lines) == 3
    assert ran("-h").stdout.splitlines() == ran("help").stdout.splitlines() == lines
    assert ran().stderr.splitlines() == lines


def test_each_command_is_in_one_row_of_the_table() -> None:
    listed = [name for row, _ in tree.rows() for name in row]
    assert len(listed) == len(set(listed))
    assert set(listed) == {name for name, one in MAIN.commands.items() if not one.hidden}
    assert "More:" not in ran("--help").stdout


def test_a_command_that_the_table_lacks_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    labs, *others = tree.GROUPS
    monkeypatch.setattr(tree, "GROUPS", {name: tree.GROUPS[name] for name in others})
    shown = ran("--help").stdout
    assert labs not in shown
    assert "More:\n  create " in shown


def test_what_other_tools_call_a_verb_is_not_a_command_and_names_one() -> None:
    for word, meant in FOREIGN.items():
        assert word not in MAIN.commands
        first, *rest = meant.split()
        command = MAIN.commands[first]
        assert all(word.startswith("-") or word in command.commands for word in rest)


@pytest.mark.parametrize("context", ALL.values(), ids=ALL)
def test_a_page_fits(context: Any) -> None:
    lines = context.get_help().splitlines()
    assert max(map(len, lines)) <= pages.WIDTH
    assert len(lines) <= LONGEST.get(context.info_name, OTHERS)
    assert not any(word in "\n".join(lines) for word in ("<bool>", "<str>", "{", "Examples:\n\n", "[["))
    assert isinstance(context.command, app.Command | app.Group)


def test_join_fits_a_screen() -> None:
    assert len(ran("join", "--help").stdout.splitlines()) <= 45


@pytest.mark.parametrize("name", [name for name, one in ALL.items() if isinstance(one.command, app.Command)])
def test_examples_can_be_typed(name: str) -> None:
    """At most three, of this command, with arguments and options that it has."""
    context = ALL[name]
    if context.parent.info_name == "add":
        return  # commands of faults come from their kinds
    found = pages.examples(context.command)
    assert 1 <= len(found) <= 3
    for line in found:
        typed = re.split(" (?:[<>|]|>>) (?![^']*')", line)[0]  # what is in quotation marks is for the node
        typed = re.sub(r'^eval "\$\((.*)\)"$', r"\1", typed)
        words = shlex.split(typed.removeprefix("sudo "))
        names = pages.typed(context).split()
        assert words[: len(names)] == names
        parser = context.command.make_parser(context)
        _, left, _ = parser.parse_args(args=words[len(names) :])
        assert left == [] or context.allow_extra_args or isinstance(context.command, Verbatim)


def test_supplies_are_described_once() -> None:
    assert "--mirror URL|DIR" in ran("create", "--help").stdout
    for name in ("join", "apply"):
        shown = ran(name, "--help").stdout
        assert "--mirror URL|DIR" not in shown
        assert "('winlab create --help' explains):\n  --mirror, " in shown


def test_help_of_a_command_by_name() -> None:
    assert ran("help", "node", "add").stdout == ran("node", "add", "--help").stdout
    assert ran("help", "nothing").exit_code == 5


def test_an_error_of_usage_begins_with_the_same_line() -> None:
    done = ran("node", "add", "--count", "0")
    assert done.exit_code == 2
    assert done.stderr.startswith("Usage: winlab node add [POOL] [OPTIONS]\n")
