"""A failure's message names the known cause that its own words or the evidence show."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from winlab.errors import GuestError, HostError
from winlab.events import Quiet
from winlab.steps import evidence

SETUP = "2026-01-01 10:00:03, Error      SP     Result = 0x80070103[gle=0x00000000]"


def kept(monkeypatch: pytest.MonkeyPatch, error: GuestError, *logs: str, then: str | None = None) -> GuestError:
    monkeypatch.setattr(evidence, "collect", lambda *_: (Path("/state/evidence/node-1"), list(logs)))
    evidence.keep(cast(Any, None), cast(Any, None), lambda *_: [], error, Quiet(), then)
    return error


def test_the_cause_in_the_evidence_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    error = kept(monkeypatch, GuestError("It stands.", why="Nothing moves.", cure="Look.", evidence="x"), "fine", SETUP)
    assert error.why.startswith("Nothing moves.\nA driver does not install in Windows PE")
    assert "workers.bus=sata" in error.cure
    assert error.cure.endswith("boot.wim. Look.")
    assert error.evidence == "/state/evidence/node-1; x"


def test_the_cure_of_the_cause_replaces_the_error_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(monkeypatch, GuestError("It stands.", cure="Look."), SETUP, then="Destroy it.").cure.endswith(
        "boot.wim. Destroy it."
    )
    assert kept(monkeypatch, GuestError("It stands.", cure="Look."), "fine", then="Destroy it.").cure == "Look."


def test_the_text_of_the_error_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    error = kept(monkeypatch, GuestError("No.", why="SYSPRP Failed to remove apps: 0x80073cf2."), SETUP)
    assert "An app is installed for one user only" in error.why
    assert "driver" not in error.why


def test_minor_and_overcome_causes_are_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = "winlab: warning=ssh: OpenSSH is not available", f"{SETUP}\r\nwinlab: phase=specialize\r\n"
    assert kept(monkeypatch, GuestError("It stands.", cure="Look."), *logs).cure == "Look."


def test_without_evidence_the_cause_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def collect(*_: object) -> None:
        raise HostError("no libvirt")

    monkeypatch.setattr(evidence, "collect", collect)
    error = GuestError("A command ended with exit code 1191.", cure="Look.")
    evidence.keep(cast(Any, None), cast(Any, None), lambda *_: [], error, Quiet())
    assert "someone is logged on (1191)" in error.why
    assert error.evidence == ""


def test_a_cause_is_named_once() -> None:
    error = GuestError("A command ended with exit code 1191.", cure="Look.")
    evidence.name_cause(error)
    said = error.why, error.cure
    evidence.name_cause(error)
    assert (error.why, error.cure) == said
