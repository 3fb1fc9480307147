"""Runs as a trace file for Perfetto (https://ui.perfetto.dev) or chrome://tracing, which need no other file.

The format is Chrome's JSON: "Trace Event Format", Google, 2016, with complete events (ph X), metadata (ph M), and times
in microseconds. https://perfetto.dev/docs/getting-started/other-formats says what Perfetto reads of it: on one thread,
events have to nest, so steps of one node that overlap are on threads of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from winlab.history import critical
from winlab.history.runs import RunRecord, StepRecord

MICRO = 1_000_000


def document(runs: Iterable[RunRecord]) -> dict[str, Any]:
    """The trace: a process for each node, and one for the critical path. Runs follow one another by the clock."""
    every = [run for run in runs if run.steps]
    if not every:
        return {"displayTimeUnit": "ms", "traceEvents": []}
    first = min(run.began for run in every)
    names: dict[str, int] = {}  # of processes
    threads: dict[tuple[int, int], str] = {}
    events: list[dict[str, Any]] = []
    end = 0
    for run in every:
        start = max(end, round((run.began - first) * MICRO))  # the clock may have been set back
        links = critical.path(run)
        on_path = {link.step.number for link in links}
        for group, rows in lanes(run).items():
            pid = names.setdefault(group, len(names) + 1)
            for tid, row in enumerate(rows, 1):
                threads[pid, tid] = group if tid == 1 else f"{group}, at the same time"
                events += [_complete(run, step, pid, tid, start, step.number in on_path) for step in row]
        if links:
            pid = names.setdefault("critical path", len(names) + 1)
            threads[pid, 1] = "critical path"
            events += [_complete(run, link.step, pid, 1, start, True) for link in links]
        end = start + max(round(run.elapsed * MICRO), 1)
    meta = [_meta("process_name", pid, 0, name=name) for name, pid in names.items()]
    meta += [_meta("process_sort_index", pid, 0, sort_index=pid) for pid in names.values()]
    meta += [_meta("thread_name", pid, tid, name=name) for (pid, tid), name in threads.items()]
    about = {f"run {run.number}": f"{run.command or 'run'} of {run.lab}: {run.state}" for run in every}
    return {"displayTimeUnit": "ms", "otherData": about, "traceEvents": [*meta, *events]}


def lanes(run: RunRecord) -> dict[str, list[list[StepRecord]]]:
    """The steps that began, by group (:meth:`RunRecord.group`), in as many rows as it takes for none to overlap."""
    groups: dict[str, list[list[StepRecord]]] = {}
    for step in run.begun:
        rows = groups.setdefault(run.group(step), [])
        start = _micro(step)[0]
        row = next((row for row in rows if sum(_micro(row[-1])) <= start), None)
        if row is None:
            rows.append(row := [])
        row.append(step)
    return groups


def _micro(step: StepRecord) -> tuple[int, int]:
    """When a step began in its run, and how long it took, in microseconds."""
    begun = round((step.begun or 0.0) * MICRO)
    return begun, max(0, round(step.ended * MICRO) - begun)


def _complete(run: RunRecord, step: StepRecord, pid: int, tid: int, start: int, critical: bool) -> dict[str, Any]:
    begun, took = _micro(step)
    about = {
        "run": run.number,
        "state": str(step.state),
        "usual seconds": step.planned.usual,
        "critical": critical,
        "reaches": step.planned.reaches,
        **({"failure": step.failure} if step.failure else {}),
    }
    event = {"name": step.planned.step, "cat": str(step.state), "ph": "X", "ts": start + begun, "dur": took}
    return {**event, "pid": pid, "tid": tid, "args": about}


def _meta(kind: str, pid: int, tid: int, **args: str | int) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args}
