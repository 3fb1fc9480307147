"""The table at the end of ``make test``: tests/durations.py."""

from __future__ import annotations

import json
from pathlib import Path

import durations
import pytest


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(durations, "FOLDER", tmp_path)
    return tmp_path


def write(folder: Path, lane: str, *rows: tuple[str, str, float, str]) -> None:
    names = ("test", "phase", "seconds", "outcome")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (folder / f"{lane}.jsonl").write_text("\n".join(lines) + "\n")


def test_the_slowest_are_listed_first_and_set_up_counts(folder: Path) -> None:
    write(folder, "labs", ("t.py::a", "setup", 300.0, "passed"), ("t.py::a", "call", 1.0, "passed"))
    write(folder, "quiet", *((f"t.py::{number}", "call", float(number), "passed") for number in range(12)))
    lines = durations.report(1799.5).splitlines()[2:]
    assert [line.split()[-1] for line in lines[:3]] == ["t.py::a", "t.py::11", "t.py::10"]
    assert lines[0].split()[:4] == ["5", "min", "00", "s"]
    assert len(lines) == durations.SLOWEST + 2 + 2  # the lanes' sums; the total, and the count
    assert lines[-2].split()[:2] == ["29", "min"]
    assert lines[-1] == "13 passed, 0 failed"


def test_a_test_whose_set_up_failed_has_failed(folder: Path) -> None:
    write(folder, "labs", ("t.py::a", "setup", 1.0, "failed"), ("t.py::b", "call", 1.0, "passed"))
    assert durations.report(2.0).splitlines()[-2:] == ["FAILED t.py::a (labs, setup): ", "1 passed, 1 failed"]
    durations.clear()
    assert durations.report(2.0).splitlines()[-1] == "0 passed, 0 failed"


@pytest.mark.parametrize(("text", "why"), [("def a():\n>   b\nE   Error: c\nE   d\n", "Error: c d"), ("gone", "gone")])
def test_the_last_lines_say_which_test_failed_and_why(monkeypatch: pytest.MonkeyPatch, text: str, why: str) -> None:
    monkeypatch.setenv(durations.LANE, "quiet")
    failed = pytest.TestReport("t.py::a", ("t.py", 1, "a"), {}, "failed", text, "call")
    durations.Recorder().pytest_runtest_logreport(failed)
    assert durations.report(1.0).splitlines()[-2:] == [f"FAILED t.py::a (quiet, call): {why}", "0 passed, 1 failed"]
