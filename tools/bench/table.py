"""The generated parts of docs/benchmarks.md, from a record. Pure."""

from __future__ import annotations

from typing import NamedTuple

from bench import chart
from bench.record import Record, Series

NONE = "No run is recorded yet: `make bench` records one."


class Goal(NamedTuple):
    """At most *most* for a series, or for its ratio to the series *over*."""

    text: str
    most: float
    what: str
    over: str = ""


GOALS = (
    Goal("A clone of a Ready 1-1-1 has an answering API after 3 s", 3, "clone: API answers"),
    Goal("That takes at most 1 % of the time of a cold `create`", 0.01, "clone: API answers", "create, cold"),
    Goal("A reset takes 3 s, to an answering API", 3, "reset: API answers"),
    Goal("Ten clones need less memory than three labs", 3, "ten clones: memory", "one lab: memory"),
    Goal(
        "One VM takes at most 1.2 times as long as with raw libvirt", 1.2, "VM answers: winlab", "VM answers: libvirt"
    ),
    Goal("The command starts within 0.15 s", 0.15, "start: winlab --version"),
    Goal(
        "50 machines take at most 1.3 times as long per machine as 5",
        1.3,
        "50 machines: time per machine",
        "5 machines: time per machine",
    ),
    Goal("Starting 50 machines needs at most 200 MB of winlab", 200, "50 machines: winlab's memory"),
)
PICTURE = {  # series, and what the picture calls them
    "create, cold": "create, empty caches",
    "create, from cache": "create, from the caches",
    "reset: API answers": "reset, until the API answers",
    "clone: API answers": "clone, until the API answers",
    "clone: machines run": "clone, until the machines run",
    "save: machines paused": "save, the pause",
    "destroy": "destroy",
    "status": "status",
    "start: winlab --version": "winlab --version",
}


def shown(value: float, unit: str = "") -> str:
    """A value with three digits, and its unit."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f}{unit and ' '}{unit}"


def goals(record: Record) -> str:
    """The table of the goals."""
    rows = ["| goal | measured | reached |", "| --- | --- | --- |"]
    for goal in GOALS:
        series = record.series(goal.what)
        ratio = record.ratio(goal.what, goal.over)
        if series is None or (goal.over and ratio is None):
            rows.append(f"| {goal.text} | not measured | - |")
            continue
        value = series.median if ratio is None else ratio
        text = shown(value, "" if goal.over else series.unit) if value >= 0.1 else f"{value:.3g}"
        rows.append(f"| {goal.text} | {text} | {'yes' if value <= goal.most else 'no'} |")
    return "\n".join(rows)


def results(record: Record) -> str:
    """The host, and a table of all that was measured."""
    if not record.results:
        return NONE
    lines = ["| host | |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in record.host.items()]
    lines += ["", "| measurement | what | median | least to most | readings | winlab, date |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for name, result in record.results.items():
        end = f"{result.version}, {result.date} |"
        lines += [f"| `{name}` | {one.what} | {_cells(one)} | {end}" for one in result.series]
        lines += [f"| `{name}` | {one.what} | not measured: {one.why} | | | {end}" for one in result.missing]
    return "\n".join(lines)


def _cells(one: Series) -> str:
    spread = f"{shown(min(one.values))} to {shown(max(one.values))}"
    return f"{shown(one.median, one.unit)} | {spread} | {len(one.values)}"


def picture(record: Record) -> str:
    """The picture of docs/benchmarks.svg."""
    found = [(name, record.series(what)) for what, name in PICTURE.items()]
    where = [record.host[name] for name in ("processor", "cores", "KVM") if name in record.host]
    title = f"Seconds, medians: {', '.join(where)}" if where else "No run is recorded yet"
    return chart.draw(title, [(name, one.median) for name, one in found if one is not None])
