"""When a kill comes: by the events that a command prints, and by the clock."""

from __future__ import annotations

import pytest
from survive.moments import BEGINNING, COMMAND, END, LATE, MIDDLE, Point, Watch, points

from winlab import events
from winlab.errors import Failure, HostError

FAILURE = Failure.of(HostError("It failed."))
USUAL = {"network": 0.4, "boot n": 100.0, COMMAND: 4.0}


def watch(*wanted: Point, spent: dict[str, float] | None = None) -> Watch:
    return Watch(wanted, USUAL, spent or {}, 0.0)


def told(event: events.Event) -> dict[str, object]:
    return events.record(event)


STARTED, DONE = told(events.StepStarted(step="boot n")), told(events.StepDone(step="boot n"))


def test_every_step_has_its_moments() -> None:
    every = points({"network": 0.4, "boot n": 100.0})
    assert [point.moment for point in every if point.step == "network"] == [BEGINNING, MIDDLE, END]
    assert [point.moment for point in every if point.step == "boot n"] == [BEGINNING, MIDDLE, LATE, END]
    assert every[0] == Point(COMMAND, MIDDLE)
    assert every[-1] == Point(COMMAND, END)


def test_a_step_begins_and_ends_with_its_events() -> None:
    watched = watch(Point("boot n", BEGINNING), Point("boot n", END))
    assert watched.hear(told(events.StepChecking(step="boot n")), 1.0) is None
    assert watched.hear(STARTED, 2.0) == Point("boot n", BEGINNING)
    assert watched.hear(DONE, 9.0) == Point("boot n", END)
    assert watched.hear(DONE, 9.0) is None  # once each


def test_a_step_that_was_done_or_failed_has_no_moments() -> None:
    watched = watch(Point("boot n", BEGINNING), Point("boot n", END))
    assert watched.hear(told(events.StepSkipped(step="boot n")), 1.0) is None
    assert watched.hear(told(events.StepFailed(step="boot n", failure=FAILURE)), 1.0) is None


def test_the_middle_is_found_by_the_clock() -> None:
    watched = watch(Point("boot n", MIDDLE))
    assert watched.due(400.0) is None  # it has not begun
    watched.hear(STARTED, 10.0)
    assert watched.due(59.0) is None
    assert watched.due(60.0) == Point("boot n", MIDDLE)


def test_the_parts_of_a_step_are_found_by_the_clock_however_short_it_is() -> None:
    watched = watch(Point("network", "25 %"), Point("network", "75 %"))
    watched.hear(told(events.StepStarted(step="network")), 10.0)
    assert watched.due(10.05) is None
    assert watched.due(10.11) == Point("network", "25 %")
    assert watched.due(10.2) is None
    assert watched.due(10.4) == Point("network", "75 %")


def test_no_middle_after_the_end() -> None:
    watched = watch(Point("boot n", MIDDLE))
    watched.hear(STARTED, 10.0)
    watched.hear(DONE, 20.0)
    assert watched.due(99.0) is None


@pytest.mark.parametrize(("fraction", "moment"), [(None, None), (0.4, None), (0.5, MIDDLE), (0.95, LATE)])
def test_a_step_may_say_how_much_is_done(fraction: float | None, moment: str | None) -> None:
    watched = watch(Point("boot n", MIDDLE), Point("boot n", LATE))
    watched.hear(STARTED, 0.0)
    point = watched.hear(told(events.StepProgress(step="boot n", fraction=fraction)), 1.0)
    assert point == (Point("boot n", moment) if moment else None)


def test_the_middle_of_a_short_step_is_its_first_report() -> None:
    watched = watch(Point("network", MIDDLE))
    watched.hear(told(events.StepStarted(step="network")), 0.0)
    assert watched.due(50.0) is None
    assert watched.hear(told(events.StepProgress(step="network")), 0.1) == Point("network", MIDDLE)


def test_late_includes_the_work_of_an_earlier_command() -> None:
    watched = watch(Point("boot n", LATE), spent={"boot n": 55.0})
    watched.hear(STARTED, 0.0)
    assert watched.due(34.0) is None
    assert watched.due(36.0) == Point("boot n", LATE)


def test_the_command_has_moments_of_its_own() -> None:
    watched = watch(Point(COMMAND, MIDDLE), Point(COMMAND, END))
    assert watched.due(1.9) is None
    assert watched.due(2.0) == Point(COMMAND, MIDDLE)
    assert watched.hear(told(events.RunEnded(exit_code=9)), 8.0) is None
    assert watched.hear(told(events.RunEnded()), 8.0) == Point(COMMAND, END)


def test_no_middle_of_the_command_once_its_steps_run() -> None:
    watched = watch(Point(COMMAND, MIDDLE))
    watched.hear(told(events.RunStarted()), 1.0)
    assert watched.due(50.0) is None
