"""Logins to nodes during ``winlab test``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lab_fakes
import pytest
import sites
from checks_fakes import LINUX, WINDOWS

from winlab.adapters.guests import scripts
from winlab.adapters.vm import domains
from winlab.adapters.vm.domains import Machine
from winlab.checks import access, suites
from winlab.checks.access import Logins
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import GuestError, OffError
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


@pytest.mark.parametrize("state", ["off", "suspended"])
def test_a_lab_whose_controllers_do_not_run_is_not_asked(monkeypatch: pytest.MonkeyPatch, state: str) -> None:
    """ux N1: the tests waited for minutes, and would have continued."""
    there = [lab_fakes.machine("controller-1", "linux", state), lab_fakes.machine("node-1")]
    monkeypatch.setattr(domains, "machines", lambda *_: there)
    monkeypatch.setattr(access.Kubectl, "of", lambda _: None)
    for test in (suites.readiness, suites.smoke):
        with pytest.raises(OffError, match=f"'controller-1' is {state}"):
            test("lab", sites.FakeSite(), lambda _event: pytest.fail("nothing is begun"))


def test_nodes_that_do_not_run_are_known_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    there = [lab_fakes.machine("controller-1", "linux"), lab_fakes.machine("node-1")]
    monkeypatch.setattr(domains, "machines", lambda *_: there)
    monkeypatch.setattr(access.Kubectl, "of", lambda _: None)
    tags, reach = access.of("lab", sites.FakeSite())
    assert ([tag.node for tag in tags], reach.idle()) == (["controller-1", "node-1"], {})
    there[1] = lab_fakes.machine("node-1", state="off")
    assert reach.idle() == {"node-1": "off"}


def test_after_the_end_there_is_a_new_login(logins: Logins, guests: list[Guest]) -> None:
    logins.execute(WINDOWS, ["hostname"])
    logins.end()
    logins.execute(WINDOWS, ["hostname"])
    assert [guest.closed for guest in guests] == [True, False]
