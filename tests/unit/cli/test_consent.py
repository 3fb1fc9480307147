"""Whether the user accepts the terms of evaluation media: only asked at a terminal, only where it matters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer
from commands import run as winlab

from winlab import Lab
from winlab.cli import consent


class Terminal:
    """A terminal at which a user answers *answer*."""

    def __init__(self, answer: str = "y\n") -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    # not sys itself: pytest puts its own streams there between a fixture and the test
    monkeypatch.setattr(consent, "sys", SimpleNamespace(stdin=made, stderr=made))
    return made


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> list[str]:
    """What a user at a terminal is asked."""
    asked: list[str] = []
    monkeypatch.setattr(consent, "say", lambda text, **_: asked.append(text))
    return asked


def test_a_user_at_a_terminal_is_asked(questions: list[str]) -> None:
    assert consent.accepted(False, "These are the terms.")
    assert questions == ["These are the terms. Do you accept them? [y/N]"]


def test_no_one_is_asked_if_there_is_nothing_to_accept_or_the_flag_is_given(questions: list[str]) -> None:
    assert not consent.accepted(False, None)
    assert consent.accepted(True, "These are the terms.")
    assert questions == []


def test_without_a_terminal_no_one_is_asked(questions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _self: False)
    assert not consent.accepted(False, "These are the terms.")
    assert questions == []


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_loss_is_confirmed(questions: list[str], terminal: Terminal, answer: str) -> None:
    terminal.answer = answer
    consent.require(False, "All is lost.")
    assert questions == ["All is lost. Continue? [y/N]"]


@pytest.mark.parametrize("answer", ["\n", "n\n", "yesterday\n", ""])
def test_any_other_answer_and_the_end_of_the_input_refuse(
    questions: list[str], terminal: Terminal, answer: str
) -> None:
    terminal.answer = answer
    with pytest.raises(typer.Exit) as ended:
        consent.require(False, "All is lost.")
    assert ended.value.exit_code == 1
    assert questions[-1] == "Nothing was changed."


def test_no_one_is_asked_with_the_flag_or_without_a_terminal(
    questions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    consent.require(True, "All is lost.")
    monkeypatch.setattr(Terminal, "isatty", lambda _self: False)
    consent.require(False, "All is lost.")
    assert questions == []


@pytest.mark.parametrize(
    "words",
    [
        ("reset",),
        ("snapshot", "delete", "a"),
        ("image", "rm", "debian-13"),
        ("hypervisor", "forget", "hypervisor-2"),
        ("host", "teardown"),
    ],
    ids=" ".join,
)
def test_commands_that_lose_data_ask_first(
    questions: list[str], terminal: Terminal, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    terminal.answer = "n\n"
    assert winlab(monkeypatch, *words) == 1
    assert [text.endswith("Continue? [y/N]") for text in questions] == [True, False]


def test_destroy_names_the_nodes(questions: list[str], terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal.answer = "n\n"
    monkeypatch.setattr(Lab, "machines", lambda self: [SimpleNamespace(tag=SimpleNamespace(node="node-1"))])
    assert winlab(monkeypatch, "destroy", "ci") == 1
    assert questions[0] == "The lab 'ci' and everything on its nodes (node-1) will be removed. Continue? [y/N]"
