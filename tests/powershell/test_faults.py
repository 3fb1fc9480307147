"""faults.ps1: a wrong clock and a full disk as injected faults, and both cleared again."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from powershell.doubles.looks import Ran, act, refuse
from powershell.doubles.machine import Machine
from powershell.stages import change, json_of, service, write

RECORD = r"C:\winlab\clock.json"
FILL = r"C:\winlab\faults.fill"
FREE = 25_000_000_000  # bytes on C: of a fresh node


def faults(node: Machine, skew: int | None = None, free: int | None = None, ahead: int = 0, **result: Any) -> Ran:
    """The script, on a node whose clock is ahead of the host's by so many seconds."""
    settings = {"skew": skew, "free": free, "now": int(time.time()) - ahead}
    return act(node, "faults", settings, **result)


def moved(ran: Ran) -> list[int]:
    """By how many seconds the clock was moved, each time; a second more or less is the test's own pace."""
    return [int(line.split()[1]) for line in ran.notes if line.startswith("clock ")]


def about(ran: Ran, *seconds: int) -> bool:
    """Whether the clock was moved by that, and by the time that the script took on a busy machine."""
    return len(moved(ran)) == len(seconds) and all(
        abs(one - two) <= 60 for one, two in zip(moved(ran), seconds, strict=True)
    )


def test_without_faults_nothing_changes(node: Machine) -> None:
    ran = faults(node, changed=False)
    assert (ran.changes, ran.notes) == ({}, [])


@pytest.mark.parametrize("skew", [3600, -3600, 0])
def test_the_clock_is_moved_and_time_service_stopped(node: Machine, skew: int) -> None:
    ran = faults(node, skew=skew, changed=skew != 0)
    assert about(ran, *([skew] if skew else []))
    assert json.loads(str(ran.changes.pop(RECORD))) == {"skew": skew, "start": "Auto", "ran": True}
    assert ran.changes == {"service W32Time": "Stopped Disabled"}
    assert [line for line in ran.notes if not line.startswith("clock")] == [
        "service W32Time Disabled",
        "service W32Time Stopped",
    ]


def test_the_same_fault_again_moves_nothing(node: Machine) -> None:
    faults(node, skew=3600)
    ran = faults(node, skew=3600, ahead=3600, changed=False)
    assert ran.changes == {}
    assert moved(ran) == []


def test_another_skew_moves_by_the_difference(node: Machine) -> None:
    faults(node, skew=3600)
    # the settings come 40 s late: the clock must not be set back by them
    ran = faults(node, skew=600, ahead=3640, changed=True)
    assert about(ran, -3000)
    assert json_of(node, RECORD) == {"skew": 600, "start": "Auto", "ran": True}


@pytest.mark.parametrize("ahead", [0, 3800, 3400])
def test_a_clock_that_was_set_manually_is_set_by_the_host_s(node: Machine, ahead: int) -> None:
    faults(node, skew=3600)
    ran = faults(node, skew=3600, ahead=ahead, changed=False)
    assert about(ran, 3600 - ahead)


@pytest.mark.parametrize(
    ("status", "start", "after", "asked"),
    [
        ("Running", "Automatic", "Running Automatic", ["service W32Time Automatic", "service W32Time Running"]),
        ("Running", "Manual", "Running Manual", ["service W32Time Manual", "service W32Time Running"]),
        ("Stopped", "Manual", "Stopped Manual", ["service W32Time Manual"]),
    ],
)
def test_the_clock_and_the_time_service_are_as_before(
    node: Machine, status: str, start: str, after: str, asked: list[str]
) -> None:
    service(node, "W32Time", status=status)
    state = node.state()
    state["services"]["W32Time"]["start"] = start
    node.state(state)
    faults(node, skew=3600)
    ran = faults(node, ahead=3600, changed=True)
    assert about(ran, -3600)
    assert ran.changes[RECORD] is None
    assert ran.changes["service W32Time"] == after
    assert [line for line in ran.notes if line.startswith("service")] == asked
    assert faults(node, changed=False).changes == {}


def test_the_state_of_the_service_is_kept_over_a_second_fault(node: Machine) -> None:
    faults(node, skew=3600)
    faults(node, skew=7200, ahead=3600)
    faults(node, ahead=7200, changed=True)
    assert node.state()["services"]["W32Time"] == {"status": "Running", "start": "Automatic", "depends": []}


def test_a_fault_that_failed_in_its_middle_is_known_to_the_next(node: Machine) -> None:
    settings = {"skew": 3600, "free": None, "now": int(time.time())}
    refuse(node, "faults", settings, "it failed on purpose", fail=("Set-Date", 1))
    assert json_of(node, RECORD) == {"skew": 0, "start": "Auto", "ran": True}
    ran = faults(node, changed=True)
    assert moved(ran) == []
    assert node.state()["services"]["W32Time"]["start"] == "Automatic"
    assert not node.path(RECORD).exists()


@pytest.mark.parametrize("free", [1_000_000_000, 5_000_000])
def test_the_disk_is_filled_and_emptied(node: Machine, free: int) -> None:
    write(node, r"C:\winlab\other.txt")
    ran = faults(node, free=free, changed=True)
    assert list(ran.changes) == [FILL]
    assert node.path(FILL).stat().st_size == FREE - free
    assert faults(node, free=free, changed=False).changes == {}
    # others write and remove, too: a difference of more than a megabyte is corrected
    assert faults(node, free=free + 900_000, changed=False).changes == {}
    faults(node, free=free + 2_000_000, changed=True)
    assert node.path(FILL).stat().st_size == FREE - free - 2_000_000
    ran = faults(node, changed=True)
    assert ran.changes == {FILL: None}


def test_more_than_is_free_leaves_the_file_empty(node: Machine) -> None:
    faults(node, free=FREE * 2, changed=True)
    assert node.path(FILL).stat().st_size == 0


def test_both_at_once_and_one_after_the_other(node: Machine) -> None:
    faults(node, skew=600, free=1_000_000_000, changed=True)
    ran = faults(node, skew=600, ahead=600, changed=True)
    assert ran.changes == {FILL: None}
    ran = faults(node, free=1_000_000_000, ahead=600, changed=True)
    assert set(ran.changes) == {FILL, RECORD, "service W32Time"}


def test_a_fault_of_the_disk_leaves_the_clock(node: Machine) -> None:
    write(node, r"C:\winlab\other.txt")
    change(node, volumes=[{"letter": "C", "fs": "NTFS", "size": 2, "free": 3_000_000_000, "label": "", "type": 3}])
    ran = faults(node, free=1_000_000_000, changed=True)
    assert (list(ran.changes), ran.notes) == ([FILL], [])
    assert re.fullmatch("\0*", node.path(FILL).read_text()[:9])
