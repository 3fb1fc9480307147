"""Journals of invented runs: events as the engine would report them."""

from __future__ import annotations

from typing import Any

from winlab.errors import Failure
from winlab.events import (
    Event,
    NodeTransport,
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

BEGAN = 1_700_000_000.0
# 1 network -> 2 disk a -> 3 boot a -> 5 join a;  1 -> 4 disk b (another node)
PLANNED = (
    Planned("network", "network", "lab", "", 2.0),
    Planned("disk a", "disk", "lab", "a", 1.0, (1,)),
    Planned("boot a", "booted", "lab", "a", 60.0, (2,)),
    Planned("disk b", "disk", "lab", "b", 1.0, (1,)),
    Planned("join a", "member", "lab", "a", 30.0, (1, 3)),
)
KINDS: dict[str, type[StepEvent]] = {
    "checking": StepChecking,
    "started": StepStarted,
    "progress": StepProgress,
    "transport": NodeTransport,
    "skipped": StepSkipped,
    "done": StepDone,
}


class Script:
    """Writes the events of one run."""

    def __init__(
        self, run: str = "r1", planned: tuple[Planned, ...] = PLANNED, began: float = BEGAN, **about: Any
    ) -> None:
        self.run, self.planned, self.began = run, planned, began
        self._times = dict[int, float]()
        about = {"command": "create", "pid": 42, "user": "ann", "version": "0.1.0", **about}
        self.events: list[Event] = [RunStarted(steps=planned, **about, **self._at(0))]

    def _at(self, elapsed: float) -> dict[str, Any]:
        when = {"time": self.began + elapsed, "lab": "lab", "total": len(self.planned)}
        return {**when, "run": self.run, "elapsed": elapsed}

    def step(self, kind: str, number: int, elapsed: float, **more: Any) -> Script:
        begun = self._times.setdefault(number, elapsed)
        one = self.planned[number - 1]
        about = {"number": number, "step": one.step, "reaches": one.reaches, "node": one.node, "usual": one.usual}
        at = {**self._at(elapsed), "lab": one.lab or "lab"}
        if kind == "failed":
            event: Event = StepFailed(failure=Failure(more["what"]), seconds=elapsed - begun, **about, **at)
        else:
            event = KINDS[kind](seconds=elapsed - begun, **about, **at, **more)
        self.events.append(event)
        return self

    def did(self, number: int, begun: float, ended: float) -> Script:
        return self.step("checking", number, begun).step("started", number, begun).step("done", number, ended)

    def end(self, elapsed: float, exit_code: int = 0) -> Script:
        self.events.append(RunEnded(exit_code=exit_code, **self._at(elapsed)))
        return self


def whole() -> Script:
    """A run in which b's disk waited for its turn and a's boot took longest: 100 s."""
    script = Script().did(1, 0, 2).did(2, 2, 3).did(4, 5, 6).did(3, 3, 70).did(5, 71, 100)
    script.events.sort(key=lambda event: event.elapsed)
    return script.end(100)


def earlier(events: list[Event]) -> list[dict[str, Any]]:
    """The records of an earlier winlab, which did not have all of the fields."""
    from winlab.events import record

    rows = []
    for event in events:
        row = record(event)
        for name in ("run", "elapsed", "number", "command", "pid", "user", "version"):
            row.pop(name, None)
        for one in row.get("steps", ()):
            one.pop("after")
        rows.append(row)
    return rows
