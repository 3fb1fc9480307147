"""Whether the user accepts the terms of evaluation media: only asked at a terminal, only where it matters."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer

from winlab.cli import consent


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A user at a terminal who says yes; the questions."""
    asked: list[str] = []

    def confirm(text: str, err: bool) -> bool:
        asked.append(text)
        return True

    # not sys itself: pytest puts its own streams there between a fixture and the test
    monkeypatch.setattr(consent, "sys", SimpleNamespace(stdin=Terminal(), stderr=Terminal()))
    monkeypatch.setattr(typer, "confirm", confirm)
    return asked


def test_a_user_at_a_terminal_is_asked(questions: list[str]) -> None:
    assert consent.accepted(False, "These are the terms.")
    assert questions == ["These are the terms. Do you accept them?"]


def test_no_one_is_asked_if_there_is_nothing_to_accept_or_the_flag_is_given(questions: list[str]) -> None:
    assert not consent.accepted(False, None)
    assert consent.accepted(True, "These are the terms.")
    assert questions == []


def test_without_a_terminal_no_one_is_asked(questions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _self: False)
    assert not consent.accepted(False, "These are the terms.")
    assert questions == []
