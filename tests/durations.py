"""How long each test took, with its set-up: a pytest plugin that writes it to a file, and the table of the slowest."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "build/durations"
LANE = "WINLAB_TEST_LANE"  # the lane that tests run in (tests/lanes.py); without one they write nothing
SLOWEST = 10
FAILURES = 10  # at most so many are described at the end; the run's output has all


class Recorder:
    """Appends a line of JSON for each phase of each test."""

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a phase: setup, call or teardown."""
        row = {"test": report.nodeid, "phase": report.when, "seconds": report.duration, "outcome": report.outcome}
        if report.failed:
            row["why"] = "\n".join(re.findall(r"^E +(.*)", report.longreprtext, re.M)) or report.longreprtext
        FOLDER.mkdir(parents=True, exist_ok=True)
        with (FOLDER / f"{os.environ[LANE]}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def register(config: pytest.Config) -> None:
    """Record this run, in the process that gets the reports of all tests."""
    if LANE in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


def clear() -> None:
    """Forget earlier runs."""
    for path in FOLDER.glob("*.jsonl"):
        path.unlink()


def text(seconds: float) -> str:
    """Minutes and seconds."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f} min {rest:02.0f} s" if minutes else f"{rest:.1f} s"


def report(total: float) -> str:
    """The slowest phases of all lanes, each lane's sum, the total, which tests failed, and how many."""
    rows = [
        {"lane": path.stem, **json.loads(line)}
        for path in sorted(FOLDER.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    rows.sort(key=lambda row: -row["seconds"])
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row["lane"]] += row["seconds"]
    lines = [f"{text(row['seconds']):>13}  {row['lane']:8}  {row['phase']:8}  {row['test']}" for row in rows[:SLOWEST]]
    lines += [f"{text(seconds):>13}  {lane:8}  all tests, one after another" for lane, seconds in sums.most_common()]
    failed = {row["test"] for row in rows if row["outcome"] == "failed"}
    passed = {row["test"] for row in rows if (row["phase"], row["outcome"]) == ("call", "passed")} - failed
    lines += [f"{text(total):>13}  in all", *_failures(rows), f"{len(passed)} passed, {len(failed)} failed"]
    return "\n".join(["", f"The {SLOWEST} slowest (build/durations has all):", *lines])


def _failures(rows: list[dict[str, Any]]) -> list[str]:
    """Which phases failed, and the first words of why: a reader may have only the end of the output."""
    failed = [row for row in rows if row["outcome"] == "failed"]
    return [
        f"FAILED {row['test']} ({row['lane']}, {row['phase']}): {textwrap.shorten(row.get('why', ''), 300)}"
        for row in failed[:FAILURES]
    ]
