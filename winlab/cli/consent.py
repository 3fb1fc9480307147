"""Asks users at a terminal: whether to do what loses data, and whether they accept Microsoft's terms."""

from __future__ import annotations

import sys

import typer

from winlab.cli.common import say
from winlab.errors import ExitCode


def accepted(given: bool, terms: str | None) -> bool:
    """Whether the terms are accepted now: by the flag, or at the terminal if there are any to accept."""
    if given or terms is None or not _can_ask():
        return given
    return _asked(f"{terms} Do you accept them?")


def require(yes: bool, lost: str) -> None:
    """Ask before something is lost; without a terminal the command counts as meant.

    :param yes: the flag: do not ask.
    :param lost: what is about to happen, as a sentence.
    :raises typer.Exit: the user does not want it.
    """
    if not asks(yes) or _asked(f"{lost} Continue?"):
        return
    say("Nothing was changed.", error=True)
    raise typer.Exit(ExitCode.FAILED)


def asks(yes: bool) -> bool:
    """Whether :func:`require` would ask: a command need not find out what is lost otherwise."""
    return not yes and _can_ask()


def _can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _asked(question: str) -> bool:
    """The answer of the user; the end of the input means no. Ctrl-C ends the command as everywhere."""
    say(f"{question} [y/N]", end=" ", error=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        say("", error=True)
    return answer.strip().lower() in ("y", "yes")
