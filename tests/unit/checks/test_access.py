"""Logins to nodes during ``winlab test``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sites
from checks_fakes import LINUX, WINDOWS

from winlab.adapters.guests import scripts
from winlab.adapters.vm.domains import Machine
from winlab.checks.access import Logins
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import GuestError
from winlab.lab_folder import LabFolder


class Guest:
    """Prints its name; the command ``fail`` fails."""

    def __init__(self, node: str) -> None:
        self.node, self.closed = node, False

    def execute(self, command: list[str], stdout: Any, *_: object) -> int:
        stdout(self.node.encode())
        return int(command == ["fail"])

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def guests(monkeypatch: pytest.MonkeyPatch) -> list[Guest]:
    made: list[Guest] = []

    def connect(tag: Any, _folder: LabFolder) -> Guest:
        made.append(Guest(tag.node))
        return made[-1]

    monkeypatch.setattr(scripts, "connect", connect)
    return made


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Logins:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    machines = [Machine(tag.node, "running", tag, hypervisor=HYPERVISOR) for tag in (WINDOWS, LINUX)]
    return Logins(sites.lab(), machines)


def test_a_node_is_logged_in_to_once(logins: Logins, guests: list[Guest]) -> None:
    for tag in (WINDOWS, LINUX, WINDOWS):
        assert logins.execute(tag, ["hostname"]) == tag.node
    assert [guest.node for guest in guests] == ["node-1", "linux-1"]
    logins.end()
    assert all(guest.closed for guest in guests)


def test_after_a_failure_there_is_a_new_login(logins: Logins, guests: list[Guest]) -> None:
    """A node that restarts ends a WinRM shell, and says so by an error like any other."""
    with pytest.raises(GuestError):
        logins.execute(WINDOWS, ["fail"])
    assert guests[0].closed
    assert logins.execute(WINDOWS, ["hostname"]) == "node-1"
    assert len(guests) == 2


def test_after_the_end_there_is_a_new_login(logins: Logins, guests: list[Guest]) -> None:
    logins.execute(WINDOWS, ["hostname"])
    logins.end()
    logins.execute(WINDOWS, ["hostname"])
    assert [guest.closed for guest in guests] == [True, False]
