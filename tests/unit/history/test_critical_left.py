"""The critical path and the time left: from dependencies and times, also where a journal makes no sense."""

from __future__ import annotations

from dataclasses import replace

import histories
import pytest
from histories import PLANNED, Script

from winlab.events import Planned
from winlab.history import critical, left
from winlab.history.runs import History, RunRecord


def run(script: Script) -> RunRecord:
    return History(script.events).runs[0]


def titles(record: RunRecord) -> list[tuple[str, float]]:
    return [(link.step.planned.step, link.waited) for link in critical.path(record)]


def test_the_path_ends_with_the_last_step_and_follows_the_longest_waits() -> None:
    expected = [("network", 0), ("disk a", 0), ("boot a", 0), ("join a", 1)]
    assert titles(run(histories.whole())) == expected


def test_a_step_that_waited_for_its_turn_says_so() -> None:
    assert titles(run(Script().did(1, 0, 2).did(2, 2, 3).did(4, 5, 60))) == [("network", 0), ("disk b", 3)]


def test_without_dependencies_there_is_no_path() -> None:
    planned = tuple(replace(one, after=()) for one in PLANNED)
    assert titles(run(Script(planned=planned).did(1, 0, 2).did(2, 2, 3))) == []
    assert titles(run(Script())) == []
    assert titles(run(Script(planned=PLANNED[:1]).did(1, 0, 2))) == [("network", 0)]


def test_steps_that_wait_for_each_other_end_nowhere() -> None:
    planned = (Planned("x", after=(2, 1, 99, -4)), Planned("y", after=(1, 2)))
    assert titles(run(Script(planned=planned).did(1, 0, 2).did(2, 1, 3))) == [("x", 0), ("y", 0)]


@pytest.mark.parametrize(
    ("script", "elapsed", "seconds"),
    [
        (Script(), 0, 2 + 1 + 60 + 30),
        (Script().did(1, 0, 2), 2, 1 + 60 + 30),
        (Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3), 23, 40 + 30),
        (Script().did(1, 0, 2).did(2, 2, 3).step("started", 3, 3), 203, 20 + 30),  # late: a tenth more
        (Script().did(1, 0, 2).did(2, 2, 3).step("skipped", 3, 3), 3, 30),
        (histories.whole(), 100, 0),
    ],
)
def test_the_time_left_is_that_of_the_longest_chain(script: Script, elapsed: float, seconds: float) -> None:
    assert left.seconds(run(script), elapsed) == pytest.approx(seconds)


def test_steps_done_by_an_earlier_run_cost_only_a_check() -> None:
    known = History(Script().did(1, 0, 2).did(2, 2, 3).did(3, 3, 60).events).known_done()
    assert left.seconds(run(Script()), 0, known) == 1 + 1 + 1 + 30
    assert left.seconds(run(Script().step("checking", 1, 0)), 0, known) == 1 + 1 + 1 + 30
    assert left.seconds(run(Script().step("started", 1, 0)), 0, known) == 2 + 1 + 1 + 30  # it was undone


def test_a_circular_plan_has_a_time_left() -> None:
    planned = (Planned("x", usual=5.0, after=(2,)), Planned("y", usual=-7.0, after=(1,)))
    assert left.seconds(run(Script(planned=planned)), 0) == 5
    assert left.seconds(RunRecord(1), 0) == 0
