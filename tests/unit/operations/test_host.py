"""doctor, host setup and host teardown, as commands ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from winlab import Spec, StepDone
from winlab.host import doctor
from winlab.host import facts as recorded
from winlab.host import setup as setting_up
from winlab.host import teardown as tearing_down
from winlab.host.doctor import Needs
from winlab.host.setup import Wanted
from winlab.operations import host


def test_doctor_compares_the_host_with_the_spec_and_reads_no_facts_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Needs | None] = []

    def unreadable() -> None:
        raise AssertionError

    monkeypatch.setattr(doctor, "diagnose", lambda needs=None: compared.append(needs) or [])
    monkeypatch.setattr(recorded, "read_facts", unreadable)
    host.diagnose(None, lambda _event: None)
    host.diagnose(Spec.load("1-1-1", ["workers.cpus=9"], rehearse=True), lambda _event: None)
    host.diagnose(Spec.load("1-1-1", ["workers.cpus=5"], rehearse=True), lambda _event: None)
    nothing, large, small = compared
    assert nothing is None
    assert large is not None
    assert small is not None
    assert large.vcpus - small.vcpus == 4


def test_setup_and_teardown_are_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(setting_up, "setup", lambda _progress, wanted: wanted)
    monkeypatch.setattr(tearing_down, "teardown", lambda _progress, *, force: told.append(force))
    monkeypatch.setattr(host.boot, "warning", lambda: "")
    wanted = Wanted("10.9.0.0/24", join="ann@h1", tunnel_address="192.0.2.1")
    assert host.setup(told.append, external_cidr="10.9.0.0/24", join="ann@h1", tunnel_address="192.0.2.1") == wanted
    host.teardown(told.append, force=True)
    assert True in told
    assert [event.step for event in told if isinstance(event, StepDone)] == ["host setup", "host teardown"]
