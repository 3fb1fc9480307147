"""events, timeline, status --watch: their output, and that Ctrl-C is a successful end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import histories
import pytest
import results
from commands import ran
from histories import BEGAN, Script

from winlab import Lab
from winlab.events import Event, Note
from winlab.history.runs import History
from winlab.history.timeline import Timeline
from winlab.operations import watch
from winlab.operations.watch import View


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events of the lab's journal."""
    every: list[Event] = []

    def events(self: Lab, run: object, *, follow: bool) -> Iterator[Event]:
        assert run in ("all", "last", 3)
        yield from every
        if follow:
            raise KeyboardInterrupt

    def timeline(self: Lab, run: object) -> Timeline:
        history = History(every)
        history.finish()
        return Timeline(self.name, tuple(history.runs))

    monkeypatch.setattr(Lab, "events", events)
    monkeypatch.setattr(Lab, "timeline", timeline)
    return every


def test_events_are_lines(journal: list[Event]) -> None:
    script = Script().did(1, 0, 2).step("started", 2, 3).step("progress", 2, 4, text="copying\x1b[2J", fraction=0.5)
    script.step("failed", 2, 5, what="No space.").end(6, exit_code=4)
    journal += [*script.events, Note(text="over")]
    lines = ran("events").stdout.splitlines()
    assert "create of 5 steps (ann, process 42, 0.1.0)" in lines[0]
    assert [line[21:] for line in lines[1:]][:2] == ["> network", "✓ network (2 s)"]
    assert any("disk a: copying\N{REPLACEMENT CHARACTER}[2J 50%" in line for line in lines)
    assert "ended with exit code 4" in lines[-2]
    rows = results.items(ran("events", "--output", "json").stdout)
    assert [row["event"] for row in rows[:2]] == ["RunStarted", "StepChecking"]
    assert len(rows) == len(journal)


def test_interrupting_a_followed_run_is_not_a_failure(journal: list[Event]) -> None:
    journal += histories.whole().events
    done = ran("events", "-f", "--run", "3")
    assert done.exit_code == 0
    assert "join a" in done.stdout
    assert len(results.streamed(ran("events", "-f", "-o", "json").stdout)) == len(journal)
    assert ran("events", "-f", "-o", "yaml").stdout.count("---\n") == len(journal)
    assert ran("events", "--run", "first").exit_code == 2


def test_a_timeline_is_a_table_a_page_a_trace_and_json(journal: list[Event], tmp_path: Path) -> None:
    journal += histories.whole().events
    shown = ran("timeline").stdout
    assert "create (by ann, process 42, winlab 0.1.0)" in shown
    assert "done after 1:40. 5 of 5 steps are done." in shown
    assert "The critical path: 4 steps, which took 1:39, and 0:01 between them." in shown
    rows = {line.strip(" *").split("  ")[0]: line for line in shown.splitlines()}
    assert rows["boot a"].startswith("*")
    assert rows["disk b"].startswith(" ")
    page, trace, victim = tmp_path / "t.html", tmp_path / "t.json", tmp_path / "victim"
    victim.write_text("theirs")
    page.symlink_to(victim)
    trace.symlink_to(victim)
    done = ran("timeline", "--html", str(page), "--trace", str(trace))
    assert done.exit_code == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    assert victim.read_text() == "theirs"
    assert results.items(ran("timeline", "--output", "json").stdout)[0]["state"] == "done"
    assert ran("timeline", "--html", str(tmp_path / "no/t.html")).exit_code == 2


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> list[View]:
    """The lab's state, second by second; then the user stops watching."""
    every: list[View] = []

    def watched(self: Lab) -> Iterator[View]:
        yield from every
        raise KeyboardInterrupt

    monkeypatch.setattr(Lab, "watch", watched)
    return every


def seconds(script: Script, *at: float, worker: int | None = 42) -> list[View]:
    return [watch.view("lab", History(script.events), worker, [], BEGAN + one) for one in at]


def test_a_watched_lab_is_shown_when_it_changes(views: list[View]) -> None:
    going = Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3).step("progress", 3, 4, text="waiting for ssh")
    views += seconds(going, 10, 11, 12)
    views += seconds(histories.whole(), 200, 201, worker=None)
    done = ran("status", "--watch")
    assert done.exit_code == 0
    first, second = [block for block in done.stdout.split("2023-") if "lab: " in block]
    assert "create by " in first
    assert "2 of 5 steps are done, 10 s so far, about 1 min 23 s left" in first
    assert "a  -  -  1 of 3  boot a: waiting for ssh (7 s, usually 1 min 00 s)" in first
    assert "no command is changing it" in second
    assert "last run: create, done after 1:40" in second
    rows = results.streamed(ran("status", "--watch", "--output", "json").stdout)
    assert [row["run"]["state"] for row in rows] == ["running", "done"]


def test_a_watched_lab_is_a_table_on_a_terminal(views: list[View], monkeypatch: pytest.MonkeyPatch) -> None:
    views += seconds(Script().did(1, 0, 2).step("started", 2, 3), 10, 11)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the output for a terminal then
    done = ran("status", "--watch")
    assert done.exit_code == 0
    assert "ANSWERS" in done.stdout
    assert "11 s so far" in done.stdout
