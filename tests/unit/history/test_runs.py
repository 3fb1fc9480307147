"""Runs and steps from events: whole, killed, damaged, of an earlier winlab, with a clock that was set."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import histories
import pytest
from histories import BEGAN, Script

from winlab import journal
from winlab.events import Note, Planned, StepDone, parse, record
from winlab.history.runs import History, RunState, StepState


def test_a_complete_run() -> None:
    (run,) = History(histories.whole().events).runs
    assert (run.state, run.exit_code, run.elapsed, run.done) == (RunState.DONE, 0, 100, 5)
    assert (run.command, run.pid, run.user, run.version) == ("create", 42, "ann", "0.1.0")
    assert [(step.planned.step, step.begun, step.seconds) for step in run.begun] == [
        ("network", 0, 2),
        ("disk a", 2, 1),
        ("boot a", 3, 67),
        ("disk b", 5, 1),
        ("join a", 71, 29),
    ]
    assert [run.group(step) for step in run.begun] == ["lab", "a", "a", "b", "a"]


def test_a_node_s_event_does_not_change_its_step() -> None:
    script = Script().step("started", 3, 3).step("progress", 3, 9, text="waiting").step("transport", 3, 9, text="ssh")
    events = [event for row in map(record, script.events) if (event := parse(row)) is not None]
    assert events == script.events  # as a journal keeps them
    step = History(events).runs[0].steps[2]
    assert (step.state, step.text, step.seconds) == (StepState.RUNNING, "waiting", 6)


def test_a_journal_of_a_winlab_with_other_events_and_titles_is_read(tmp_path: Path) -> None:
    """NodeTransport was NodeWay once, and the step "answer ISO" was "answer"."""
    planned = (Planned("answer node-1", "answer", "lab", "node-1"), Planned("boot node-1", "booted", "lab", "node-1"))
    script = Script(planned=planned).did(1, 0, 2).step("started", 2, 3)
    rows = [record(event) for event in script.events]
    rows.append({**rows[-1], "event": "NodeWay", "way": "ssh", "deaf": ["winrm"], "sign": "ssh", "text": "deaf"})
    rows += [record(event) for event in script.step("done", 2, 9).end(9).events[len(rows) - 1 :]]
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (run,) = History(journal.read(path)).runs
    assert (run.state, run.elapsed) == (RunState.DONE, 9)
    assert [(step.planned.step, step.state, step.seconds) for step in run.steps] == [
        ("answer node-1", StepState.DONE, 2),
        ("boot node-1", StepState.DONE, 6),
    ]


def test_a_killed_run_ends_at_its_last_sign_of_life() -> None:
    script = Script().did(1, 0, 2).step("checking", 2, 2).step("started", 2, 3).step("progress", 2, 9, text="49 %")
    history = History(script.events)
    assert history.runs[0].state is RunState.RUNNING
    history.finish()
    (run,) = history.runs
    assert (run.state, run.elapsed, run.last) == (RunState.SILENT, 9, BEGAN + 9)
    states = [step.state for step in run.steps]
    assert states == [StepState.DONE, StepState.CUT, *[StepState.WAITING] * 3]
    assert (run.steps[1].seconds, run.steps[1].text) == (7, "49 %")


def test_a_run_in_progress_stays_in_progress() -> None:
    history = History(Script().did(1, 0, 2).events)
    history.finish(history.runs[-1])
    assert history.runs[0].state is RunState.RUNNING


def test_a_failure_stops_the_steps_beside_it() -> None:
    script = Script().did(1, 0, 2).step("started", 4, 3).step("started", 2, 3)
    script.step("failed", 2, 5, what="No space.").end(6, exit_code=4)
    (run,) = History(script.events).runs
    assert (run.state, run.exit_code) == (RunState.FAILED, 4)
    assert (run.steps[1].state, run.steps[1].failure) == (StepState.FAILED, "No space.")
    assert (run.steps[3].state, run.steps[3].ended) == (StepState.STOPPED, 6)
    (run,) = History(Script().step("started", 1, 1).end(2, exit_code=130).events).runs
    assert run.state is RunState.INTERRUPTED


def test_a_killed_run_is_over_when_the_next_begins() -> None:
    first, second = Script().did(1, 0, 2), Script("r2", began=BEGAN + 60).step("skipped", 1, 0)
    history = History([*first.events, *second.events])
    assert [run.state for run in history.runs] == [RunState.SILENT, RunState.RUNNING]
    assert ("lab", "network") in history.known_done()


def test_a_clock_that_is_set_changes_no_duration() -> None:
    events = histories.whole().events
    jumps = [replace(event, time=event.time + (-86400 * 9 if number > 6 else 0)) for number, event in enumerate(events)]
    (run,) = History(jumps).runs
    assert (run.elapsed, [step.seconds for step in run.begun]) == (100, [2, 1, 67, 1, 29])


def test_an_earlier_winlab_s_journal_is_read_and_never_runs_backwards() -> None:
    events = [event for row in histories.earlier(histories.whole().events) if (event := parse(row)) is not None]
    (run,) = History(events).runs
    assert (run.elapsed, run.done, run.state) == (100, 5, RunState.DONE)
    back = [replace(event, time=event.time - (500 if number > 8 else 0)) for number, event in enumerate(events)]
    (run,) = History(back).runs
    assert run.state is RunState.DONE
    for step in run.begun:
        assert step.begun is not None
        assert 0 <= step.begun <= step.ended <= run.elapsed


def test_steps_of_an_earlier_winlab_are_placed_correctly() -> None:
    """A step that labs share has no lab in the plan, but its events have the run's."""
    planned = (replace(histories.PLANNED[0], lab="", step="image x"), histories.PLANNED[1])
    script = Script(planned=planned).did(1, 0, 2)
    events = [event for row in histories.earlier(script.events) if (event := parse(row)) is not None]
    (run,) = History(events).runs
    assert [step.state for step in run.steps] == [StepState.DONE, StepState.WAITING]


def test_a_run_whose_start_is_lost_has_the_steps_that_were_reported() -> None:
    (run,) = History(histories.whole().events[6:]).runs
    assert {step.planned.step for step in run.steps} == {"disk a", "disk b", "boot a", "join a"}
    assert run.state is RunState.DONE
    assert run.began == BEGAN


def test_events_outside_a_run_belong_to_none() -> None:
    history = History([*histories.whole().events, StepDone(lab="lab", step="remove domain a")])
    assert (len(history.runs), history.runs[0].done) == (1, 5)
    assert isinstance(history.outside, StepDone)
    assert History([Note(text="x")]).runs == []
    assert History().runs == []


@pytest.mark.parametrize("number", [0, 3, 99, -1])
def test_a_number_of_another_step_is_not_trusted(number: int) -> None:
    script = Script()
    script.step("done", 1, 4)
    script.events[-1] = replace(script.events[-1], number=number)  # type: ignore[call-arg]
    (run,) = History(script.events).runs
    assert [step.state is StepState.DONE for step in run.steps] == [True, False, False, False, False]


def test_a_golden_image_s_steps_have_their_own_group() -> None:
    planned = (replace(histories.PLANNED[1], lab="golden-1"), replace(histories.PLANNED[0], lab="golden-1"))
    (run,) = History(Script(planned=planned).events).runs
    assert [run.group(step) for step in run.steps] == ["a (golden-1)", "golden-1"]
