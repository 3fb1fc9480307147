"""The report of doctor on any host: every row with its reason, and with its cure unless it is fine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from winlab.design.plan.facts import HostFacts
from winlab.errors import HostError
from winlab.host import (
    checks_machine,
    checks_services,
    daemons,
    doctor,
    fabric,
    facts,
    firewall,
    kvmprobe,
    packages,
    storage,
    subnet,
)
from winlab.host.check import Needs, Requirement, Status
from winlab.run import Result

MODULES = (checks_services, daemons, fabric, facts, firewall, kvmprobe, storage, subnet)


def refuses(args: Sequence[str], **_more: Any) -> Result:
    return Result(tuple(args), 1, "", "no\n", 0.0)


def is_silent(args: Sequence[str], **_more: Any) -> Result:
    return Result(tuple(args), 0, "", "", 0.0)


def is_missing(args: Sequence[str], **_more: Any) -> Result:
    raise HostError(f"The program '{args[0]}' is not installed.")


def is_closed(args: Sequence[str], **_more: Any) -> Result:
    raise PermissionError(13, "Permission denied", str(args[0]))


def in_full(rows: list[Requirement]) -> dict[str, Requirement]:
    """The rows by name, after checking each of them."""
    for row in rows:
        assert row.name
        assert row.detail
        assert row.why, row
        assert row.state is Status.OK or row.cure, row
    return {row.name: row for row in rows}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Requirement]]:
    """A function that runs doctor on a host where every command does *what*."""

    def diagnose(what: Callable[..., Result], known: HostFacts, needs: Needs | None = None) -> dict[str, Requirement]:
        for module in MODULES:
            monkeypatch.setattr(module, "run", what)
        for module in (daemons, facts, firewall, kvmprobe, packages):
            there = what is not is_missing
            monkeypatch.setattr(module, "find", lambda program, there=there: f"/usr/bin/{program}" if there else None)
        monkeypatch.setattr(doctor, "read_facts", lambda: known)
        return in_full(doctor.diagnose(needs))

    return diagnose


@pytest.mark.parametrize("what", [refuses, is_silent, is_missing, is_closed])
@pytest.mark.parametrize("known", [HostFacts(), HostFacts(recorded=True, accelerator="tcg", datapath="netdev")])
@pytest.mark.parametrize("needs", [None, Needs(10**7, 10**7, 10**4)])
@pytest.mark.parametrize("root", [True, False])
def test_every_row_has_its_reason_and_its_cure(
    host: Callable[..., dict[str, Requirement]],
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[..., Result],
    known: HostFacts,
    needs: Needs | None,
    root: bool,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    rows = host(what, known, needs)
    assert {"host facts", "QEMU", "KVM", "nested virtualisation", "Open vSwitch"} <= set(rows)


def test_what_follows_from_the_group_does_not_ask_for_setup(
    host: Callable[..., dict[str, Requirement]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ux D41: three rows of one cause, and two of them said to run setup."""

    def denied(args: Sequence[str], **_more: Any) -> Result:
        return Result(tuple(args), 1, "", "error: Failed to connect socket to 'x': Permission denied\n", 0.0)

    for root in (False, True):
        monkeypatch.setattr("os.geteuid", lambda root=root: 0 if root else 1000)
        rows = host(denied, HostFacts(recorded=True))
        for name in ("libvirt", "OVN northbound"):
            assert ("follows from the check 'group libvirt'" in rows[name].cure) is not root
            assert ("host setup" in rows[name].cure) is root


def test_nested_virtualisation_is_always_shown(
    host: Callable[..., dict[str, Requirement]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = tmp_path / "kvm"
    name, without = "nested virtualisation", "needs KVM, which does not work here"
    monkeypatch.setattr(checks_machine, "KVM", device)
    monkeypatch.setattr(facts, "find_nested", lambda: True)
    assert host(refuses, HostFacts(recorded=True))[name].detail == without
    device.touch()
    assert host(refuses, HostFacts(recorded=True))[name].detail == "on"
    assert host(refuses, HostFacts(recorded=True, accelerator="tcg"))[name].detail == without


@pytest.mark.parametrize("text", [b"\xff", b"- a", b"chassis: [", b"1: 2\n", b"external_cidr: 10.0.0.0/30\n"])
def test_facts_that_can_not_be_used_hide_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "host.yaml"
    path.write_bytes(text)
    for module in MODULES:
        monkeypatch.setattr(module, "run", refuses)
    monkeypatch.setattr(doctor, "read_facts", lambda: facts.read_facts(path))
    rows = doctor.diagnose()
    in_full(rows)
    assert rows[0].name == "host facts"
    assert len(rows) > 10


@pytest.mark.parametrize("works", [True, False, None])
@pytest.mark.parametrize("recorded", [None, "kvm", "tcg"])
def test_judgements_of_kvm_are_in_full(works: bool | None, recorded: str | None) -> None:
    in_full([checks_machine.judge_kvm(works, "Why.", recorded)])


def test_other_judgements_are_in_full() -> None:
    in_full([checks_machine.judge_kvm_mode(mode, group) for mode in (0o600, 0o660, 0o666) for group in ("kvm", "root")])
    in_full([checks_machine.judge_memory(free, needed) for free in (10, 100, 1000) for needed in (0, 95, 500)])
    in_full([checks_machine.judge_disk(free, needed) for free in (1, 10, 100) for needed in (0, 20, 50)])
    in_full([checks_machine.judge_processors(2, needed) for needed in (0, 2, 4)])
    ways = (True, False)
    in_full([checks_services.judge_group("ann", a, b, c) for a in ways for b in ways for c in ways])
    in_full([checks_services.judge_resolvers(["192.0.2.1"], now) for now in (["192.0.2.1"], ["192.0.2.2"])])
