"""The stand-in injects the same faults as faults.ps1."""

from __future__ import annotations

import os
import time
import types
from pathlib import Path
from typing import Any, cast

import pytest

from winlab_standin.guest import faultplayers
from winlab_standin.guest.machine import Machine

NOW = 1_800_000_000


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = float(NOW)
        monkeypatch.setattr(time, "time", lambda: self.time)
        monkeypatch.setattr(time, "clock_settime", self.set)

    def set(self, which: int, value: float) -> None:
        assert which == time.CLOCK_REALTIME
        self.time = value


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return cast(Machine, types.SimpleNamespace(c=lambda name: tmp_path / name))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def play(machine: Machine, **given: Any) -> bool:
    return bool(faultplayers.PLAYERS["faults.ps1"](machine, {"now": NOW, **given})["changed"])


def test_the_clock_is_moved_exactly_and_back(machine: Machine, clock: Clock) -> None:
    clock.time += 7  # the settings are some seconds old when they are read
    assert play(machine, skew=7200)
    assert clock.time == NOW + 7 + 7200
    assert not play(machine, skew=7200)
    assert clock.time == NOW + 7 + 7200
    assert play(machine, skew=-60)
    assert clock.time == NOW + 7 - 60
    assert play(machine)
    assert clock.time == NOW + 7
    assert not play(machine)


def test_after_a_power_cut_the_clock_is_set_by_the_host_s(machine: Machine, clock: Clock) -> None:
    play(machine, skew=7200)
    clock.time = NOW + 3  # the machine's own clock
    play(machine)
    assert clock.time == NOW


def test_the_disk_is_full_until_the_fault_ends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    room = 64 << 20
    file = tmp_path / "winlab/faults.fill"

    def there(_file: int) -> Any:
        return types.SimpleNamespace(f_bfree=room - file.stat().st_size, f_frsize=1)

    def allocate(handle: int, start: int, length: int) -> None:
        os.ftruncate(handle, start + length)

    monkeypatch.setattr(os, "fstatvfs", there)
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    assert play(machine, free=10 << 20)
    assert room - file.stat().st_size <= 11 << 20
    assert play(machine)
    assert not file.exists()
