"""Whether somebody accepts the terms of evaluation media: only asked at a terminal, only where it matters, once."""

from __future__ import annotations

from types import SimpleNamespace

import plans
import pytest
import typer

from winlab.cli import consent
from winlab.operations import consent as terms
from winlab.site import Site


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A person at a terminal who says yes; what they were asked."""
    asked: list[str] = []

    def confirm(text: str, err: bool) -> bool:
        asked.append(text)
        return True

    # not sys itself: pytest puts its own streams there between a fixture and the test
    monkeypatch.setattr(consent, "sys", SimpleNamespace(stdin=Terminal(), stderr=Terminal()))
    monkeypatch.setattr(typer, "confirm", confirm)
    return asked


def test_a_person_at_a_terminal_is_asked(questions: list[str]) -> None:
    assert consent.accepted(False, True, Site())
    assert len(questions) == 1
    assert terms.TERMS in questions[0]


def test_nobody_is_asked_where_no_medium_is_missing_or_the_flag_is_given(questions: list[str]) -> None:
    site = Site()
    assert not consent.accepted(False, False, site)
    assert consent.accepted(True, True, site)
    assert questions == []


def test_who_has_accepted_before_is_not_asked_again(questions: list[str]) -> None:
    site = Site()
    terms.give(site)
    assert not consent.accepted(False, True, site)  # create remembers by itself
    assert questions == []


def test_without_a_terminal_nobody_is_asked(questions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda _self: False)
    assert not consent.accepted(False, True, Site())
    assert questions == []


def test_every_image_whose_medium_is_missing_is_named() -> None:
    text = terms.assumed(plans.make(plans.KVM, "mixed"))
    assert text is not None
    assert [line.split(":")[0] for line in text.splitlines()] == [
        f"There are no media for windows-{release}" for release in ("2019", "2022", "2025")
    ]
    assert terms.assumed(plans.make(plans.KVM, "1-1-1", "workers.os=windows-rehearsal")) is None


@pytest.mark.parametrize(
    ("changes", "needed"),
    [
        ([], True),
        (["workers.media=/w.iso"], False),
        (["workers.win19.media=/w.iso"], True),
        (["workers.count=0"], False),
        (["workers.os=debian-13"], False),
    ],
)
def test_consent_is_needed_if_any_pool_lacks_a_medium(changes: list[str], needed: bool) -> None:
    assert terms.is_needed(plans.make(plans.KVM, "mixed", *changes)) is needed
