"""Results are kept line by line, so that an interrupted matrix resumes; and their table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from survive import report
from survive.moments import BEGINNING, END, Point
from survive.record import Calm, Kill, Record, Whole

CALM = Calm("create", "--spec 1-0-1", 200.0, 1.0, {"network": 0.4, "boot n": 100.0})
KILL = Kill("kill", "--spec 1-0-1", "network", END, "SIGKILL", 1.0, 0.0, -9, after="killed", lost=5.0)
WHOLE = Whole("kill", "--spec 1-0-1", 260.0, 3, [], [], [])


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "results/kills.jsonl")


def test_nothing_was_seen_yet(record: Record) -> None:
    assert record.calm("create", "--spec 1-0-1") is None
    assert record.over("kill", "--spec 1-0-1") == set()


def test_a_recorded_point_is_not_repeated(record: Record) -> None:
    record.add(CALM)
    record.add(KILL)
    again = Record(record.path)
    assert again.calm("create", "--spec 1-0-1") == CALM
    assert again.over("kill", "--spec 1-0-1") == {Point("network", END)}
    assert again.over("term", "--spec 1-0-1") == set()
    assert again.over("kill", "--spec 3-0-1") == set()


def test_a_point_with_a_fault_is_run_again(record: Record) -> None:
    record.add(replace(KILL, left=["+ volumes: x"]))
    assert record.over("kill", "--spec 1-0-1") == set()


def test_a_half_line_counts_for_nothing(record: Record) -> None:
    record.add(KILL)
    with record.path.open("a") as file:
        file.write('{"kind": "kill", "step"')
    assert record.kills() == [KILL]


def test_the_last_of_a_point_counts(record: Record) -> None:
    record.add(replace(KILL, lost=90.0))
    record.add(KILL)
    assert record.kills() == [KILL]


@pytest.mark.parametrize(
    ("change", "well"),
    [
        ({}, True),
        ({"after": "ready"}, True),
        ({"after": "gone"}, True),
        ({"after": "The node does not answer. []"}, False),
        ({"again": ["network"]}, False),
        ({"again": ["boot node-1", "payload windows"]}, True),  # they look and wait
        ({"again": ["boot node-1", "start node-1"]}, False),
        ({"left": ["+ volumes: x"]}, False),
        ({"processes": ["12 qemu-img"]}, False),
        ({"secrets": ["a password in /tmp/x"]}, False),
    ],
)
def test_a_point_without_a_fault_is_well(change: dict[str, object], well: bool) -> None:
    assert replace(KILL, **change).is_well is well  # type: ignore[arg-type]


def test_the_table_shows_losses_and_faults(record: Record) -> None:
    record.add(CALM)
    record.add(KILL)
    record.add(replace(KILL, step="boot n", moment=BEGINNING, lost=25.0, again=["network"], processes=["12 qemu-img"]))
    record.add(WHOLE)
    table = report.table(record)
    assert "### SIGKILL of `create`: `--spec 1-0-1`" in table
    assert "2 kills, 1 with a fault." in table
    assert "15 s on average (1.07 ×), 25 s at most (1.12 ×: boot n, beginning)" in table
    assert "| step | beginning | end | faults |" in table
    assert "| network |  | 5 s | none |" in table
    assert "| boot n | 25 s ✗ |  | beginning: done again: network; 12 qemu-img |" in table
    assert "Run twice at once in a node: nothing." in table


def test_the_table_of_a_verb_of_snapshots(record: Record) -> None:
    record.add(Calm("save", "--spec 1-0-1", 12.0, 1.0, {"save new": 8.0}))
    for moment in (BEGINNING, "25 %", "75 %"):
        record.add(replace(KILL, life="save", step="save new", moment=moment, after="ready", lost=14.0))
    record.add(replace(WHOLE, life="save"))
    table = report.table(record)
    assert "### SIGKILL of `snapshot save`, then the same: `--spec 1-0-1`" in table
    said = "3 kills, none with a fault. Undisturbed: 12 s. The same command again: 14 s at most."
    assert f"{said} Left after the last `destroy`: nothing." in table
    assert "| step | beginning | 25 % | 75 % | faults |" in table


def test_the_page_keeps_the_rest_of_its_text(record: Record, tmp_path: Path) -> None:
    record.add(CALM)
    record.add(KILL)
    page = tmp_path / "survive.md"
    page.write_text(f"# Title\n{report.BEGIN}\nold\n{report.FINISH}\nend\n")
    report.write(page, record)
    report.write(page, record)
    text = page.read_text()
    assert text.startswith(f"# Title\n{report.BEGIN}\n### SIGKILL")
    assert text.endswith(f"{report.FINISH}\nend\n")
    assert "old" not in text


def test_lives_of_an_earlier_record_stay_in_the_page(record: Record, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\n{report.FINISH}\nafter\n")
    for row in (CALM, KILL, replace(KILL, life="term")):
        record.add(row)
    report.write(page, record)
    first = page.read_text()
    assert first.count("### ") == 2

    later = Record(tmp_path / "later.jsonl")
    for row in (CALM, replace(KILL, lost=77.0), replace(KILL, life="guest")):
        later.add(row)
    report.write(page, later)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert [line for line in text.splitlines() if line.startswith("### ")] == [
        "### SIGKILL of `create`: `--spec 1-0-1`",
        "### SIGTERM of `create`: `--spec 1-0-1`",
        "### SIGKILL of the guest's QEMU: `--spec 1-0-1`",
    ]
    assert "77 s" in text
    report.write(page, later)
    assert page.read_text() == text
