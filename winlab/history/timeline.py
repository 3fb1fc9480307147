"""The timeline of a lab: its runs, and the forms in which they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from winlab.errors import NotFoundError, UsageError
from winlab.history import critical, page, trace
from winlab.history.runs import RunRecord

Which = int | Literal["last", "all"]


@dataclass(frozen=True)
class Timeline:
    """Runs of a lab, the oldest first."""

    lab: str
    runs: tuple[RunRecord, ...]

    def html(self) -> str:
        """One self-contained HTML page, with bars by node and the critical path."""
        return page.page(self.lab, self.runs)

    def trace(self) -> dict[str, Any]:
        """A trace in Chrome's JSON format, which Perfetto opens."""
        return trace.document(self.runs)

    def document(self) -> dict[str, Any]:
        """All of it as a JSON object: with the fields of the items of ``winlab timeline -o json``."""
        return {"lab": self.lab, "runs": [_run(run) for run in self.runs]}


def chosen(lab: str, runs: Sequence[RunRecord], which: Which) -> tuple[RunRecord, ...]:
    """Some of a journal's runs.

    :param which: ``last``, ``all``, or the number of one.
    :raises UsageError: there is no run of that number.
    :raises NotFoundError: there is no run at all.
    """
    if which == "all":
        return tuple(runs)
    if not runs:
        raise NotFoundError(f"The journal of the lab '{lab}' has no run yet.", cure="Wait until its steps begin.")
    if which == "last":
        return (runs[-1],)
    if not isinstance(which, int) or not 1 <= which <= len(runs):
        raise UsageError(
            f"The journal of the lab '{lab}' has no run {which}.",
            cure=f"Give a number from 1 (the oldest) to {len(runs)}, 'last' or 'all'.",
        )
    return (runs[which - 1],)


def _run(run: RunRecord) -> dict[str, Any]:
    links = critical.path(run)
    about = {
        name: getattr(run, name) for name in ("number", "id", "command", "pid", "user", "version", "began", "last")
    }
    steps = [
        {
            "number": step.number,
            "step": step.planned.step,
            "reaches": step.planned.reaches,
            "lab": step.planned.lab or run.lab,
            "node": step.planned.node,
            "state": step.state,
            "begun": step.begun,
            "seconds": round(step.seconds, 3),
            "usual": step.planned.usual,
            "after": list(step.planned.after),
            "text": step.text,
            "failure": step.failure,
        }
        for step in run.steps
    ]
    path = [{"number": link.step.number, "waited": round(link.waited, 3)} for link in links]
    return {
        **about,
        "state": run.state,
        "exit_code": run.exit_code,
        "seconds": round(run.elapsed, 3),
        "done": run.done,
        "total": len(run.steps),
        "steps": steps,
        "critical_path": path,
    }
