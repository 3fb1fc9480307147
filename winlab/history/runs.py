"""Runs and their steps, put together from events. Times in a run are seconds since it began, whatever the clock did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from winlab.events import (
    Event,
    Planned,
    RunEnded,
    RunStarted,
    StepChecking,
    StepDone,
    StepEvent,
    StepFailed,
    StepProgress,
    StepSkipped,
    StepStarted,
)

INTERRUPTED = 130  # the exit code: see docs/exit-codes.md


class RunState(StrEnum):
    """How a run ended, if it did."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SILENT = "killed (no final event)"  # or the machine went down


class StepState(StrEnum):
    """How far a step is."""

    WAITING = "waiting"
    CHECKING = "checking"  # whether it is done already
    RUNNING = "running"
    SKIPPED = "done already"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"  # another step failed, or the user interrupted
    CUT = "cut off"  # its run was killed


OPEN = (StepState.CHECKING, StepState.RUNNING)
OVER = (StepState.SKIPPED, StepState.DONE)


@dataclass
class StepRecord:
    """A step of a run.

    :param number: its place in the run's plan; the first is 1.
    :param begun: when it began, in seconds since the run's begin; None: it did not.
    :param ended: when it ended, or was last heard of.
    """

    number: int
    planned: Planned
    state: StepState = StepState.WAITING
    begun: float | None = None
    ended: float = 0.0
    text: str = ""
    fraction: float | None = None
    failure: str = ""

    @property
    def seconds(self) -> float:
        """How long it took, or has taken when it was last heard of."""
        return 0.0 if self.begun is None else max(0.0, self.ended - self.begun)


@dataclass
class RunRecord:
    """A run: what ran it, and its steps.

    :param number: its place in the journal; the oldest that the journal still has is 1.
    :param pid: the process that ran it; 0 if an earlier winlab did not say.
    :param began: seconds since 1970 by the clock of that time.
    :param last: when it was last heard of, likewise.
    :param elapsed: how long it has taken when it was last heard of, in seconds.
    """

    number: int
    id: str = ""
    lab: str = ""
    command: str = ""
    pid: int = 0
    user: str = ""
    version: str = ""
    began: float = 0.0
    last: float = 0.0
    elapsed: float = 0.0
    state: RunState = RunState.RUNNING
    exit_code: int | None = None
    steps: list[StepRecord] = field(default_factory=list)
    by_title: dict[tuple[str, str], StepRecord] = field(default_factory=dict, repr=False)

    @property
    def done(self) -> int:
        """How many of its steps are done, in this run or an earlier one."""
        return sum(step.state in OVER for step in self.steps)

    @property
    def begun(self) -> list[StepRecord]:
        """The steps that began, the earliest first."""
        return sorted(
            (step for step in self.steps if step.begun is not None), key=lambda step: (step.begun, step.number)
        )

    def group(self, step: StepRecord) -> str:
        """Whose work a step is, for people: a node, the lab, or what another lab has, such as a golden image's."""
        planned = step.planned
        if planned.lab and planned.lab != self.lab:
            return f"{planned.node} ({planned.lab})" if planned.node else planned.lab
        return planned.node or "lab"

    def close(self, state: RunState) -> None:
        """End the run, and the steps that have not ended."""
        self.state = state
        for step in self.steps:
            if step.state in OPEN:
                step.state = StepState.CUT if state is RunState.SILENT else StepState.STOPPED
                step.ended = self.elapsed


class History:
    """The runs of a journal, from its events in their order."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.runs: list[RunRecord] = []
        self.outside: Event | None = None  # the last event, if it belongs to no run
        self._by_id: dict[str, RunRecord] = {}
        for event in events:
            self.take(event)

    def take(self, event: Event) -> int | None:
        """Take the next event; returns the number of its run, or None if it belongs to none."""
        run = self._run(event)
        self.outside = event if run is None else None
        if run is None:
            return None
        if event.run:
            run.elapsed = max(run.elapsed, event.elapsed)
        else:  # of a winlab that did not count: the clock may have been set meanwhile
            run.elapsed += max(0.0, event.time - run.last)
        run.last = event.time
        if isinstance(event, StepEvent):
            _take(_step(run, event), event, event.elapsed if event.run else run.elapsed)
        elif isinstance(event, RunEnded):
            run.exit_code = event.exit_code
            states = {0: RunState.DONE, INTERRUPTED: RunState.INTERRUPTED}
            run.close(states.get(event.exit_code, RunState.FAILED))
        return run.number

    def finish(self, running: RunRecord | None = None) -> None:
        """Mark the runs without an end as killed, except the one that is *running*."""
        for run in self.runs:
            if run.state is RunState.RUNNING and run is not running:
                run.close(RunState.SILENT)

    def known_done(self) -> set[tuple[str, str]]:
        """The steps that a run did, by lab and title: a later run is likely to skip them."""
        return {(step.planned.lab, step.planned.step) for run in self.runs for step in run.steps if step.state in OVER}

    def _run(self, event: Event) -> RunRecord | None:
        """The run that an event belongs to; None if it belongs to none."""
        if isinstance(event, RunStarted):
            for other in self.runs:
                if other.state is RunState.RUNNING:
                    other.close(RunState.SILENT)
            return self._begin(event)
        if event.run:
            return self._by_id.get(event.run) or self._begin(event)
        last = self.runs[-1] if self.runs else None  # an earlier winlab's events don't name their run
        return last if event.total and last and not last.id and last.state is RunState.RUNNING else None

    def _begin(self, event: Event) -> RunRecord:
        run = RunRecord(len(self.runs) + 1, event.run, event.lab, began=event.time - event.elapsed, last=event.time)
        if isinstance(event, RunStarted):
            run.command, run.pid, run.user, run.version = event.command, event.pid, event.user, event.version
            run.steps = [StepRecord(number, planned) for number, planned in enumerate(event.steps, 1)]
        self.runs.append(run)
        if event.run:
            self._by_id[event.run] = run
        return run


def _step(run: RunRecord, event: StepEvent) -> StepRecord:
    """The step that an event is about, also of a winlab that did not number them, or of a run whose begin is lost."""
    planned = Planned(event.step, event.reaches, event.lab, event.node, event.usual, estimated=event.estimated)
    if 0 < event.number <= len(run.steps) and run.steps[event.number - 1].planned.step == event.step:
        return run.steps[event.number - 1]
    if not run.by_title:
        run.by_title = {(step.planned.lab or run.lab, step.planned.step): step for step in run.steps}
    key = (event.lab or run.lab, event.step)
    if key not in run.by_title:
        run.steps.append(StepRecord(len(run.steps) + 1, planned))
        run.by_title[key] = run.steps[-1]
    return run.by_title[key]


_STATES: dict[type[Event], StepState] = {
    StepChecking: StepState.CHECKING,
    StepStarted: StepState.RUNNING,
    StepProgress: StepState.RUNNING,
    StepSkipped: StepState.SKIPPED,
    StepDone: StepState.DONE,
    StepFailed: StepState.FAILED,
}


def _take(step: StepRecord, event: StepEvent, elapsed: float) -> None:
    begun = max(0.0, elapsed - max(0.0, event.seconds))
    step.begun = begun if step.begun is None else min(step.begun, begun)
    step.ended = elapsed
    step.state = _STATES.get(type(event), step.state)  # other events of a step change nothing
    if isinstance(event, StepProgress):
        step.text, step.fraction = event.text, event.fraction
    elif isinstance(event, StepFailed):
        step.failure = " ".join(filter(None, (event.failure.what, event.failure.why)))
