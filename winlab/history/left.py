"""How long the rest of a run takes, from how long its steps usually take and how far they are."""

from __future__ import annotations

from collections.abc import Collection

from winlab.history.runs import OPEN, RunRecord, StepRecord, StepState

SKIP = 1.0  # seconds for a step that an earlier run has done: it only looks
LATE = 0.1  # a step that takes longer than usual is expected to take as much more of the time that it took


def seconds(run: RunRecord, elapsed: float, known_done: Collection[tuple[str, str]] = ()) -> float:
    """Seconds until the run is done: the longest chain of steps that are left. Nothing slows steps that run at once.

    :param elapsed: seconds since the run began.
    :param known_done: steps that an earlier run did, by lab and title.
    """
    ends: dict[int, float] = {}
    for step in run.steps:  # each comes after those that it waits for
        first = max((ends[number] for number in step.planned.after if number in ends), default=0.0)
        ends[step.number] = first + _rest(step, elapsed, known_done)
    return max(ends.values(), default=0.0)


def _rest(step: StepRecord, elapsed: float, known_done: Collection[tuple[str, str]]) -> float:
    usual = max(0.0, step.planned.usual)
    skips = (step.planned.lab, step.planned.step) in known_done
    if step.state is StepState.WAITING:
        return min(usual, SKIP) if skips else usual
    if step.state not in OPEN:
        return 0.0
    spent = max(0.0, elapsed - (step.begun or 0.0))
    if step.state is StepState.CHECKING and skips and spent < usual:
        return min(usual, SKIP)
    return max(usual - spent, spent * LATE)
