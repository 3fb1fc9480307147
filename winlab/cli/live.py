"""The live view of a run on a terminal: a log above; below it one line for each machine, and how far the run is.

::

    ✓ disk node-1 (4 s)
      controller-1  11 of 11  done
    ⠋ node-1         5 of 14  boot 1:15, usually 2:00: specialize
    ⠋ lab            3 of 9   payload linux 0:31: compiling kubelet 30%
      19 of 34 steps are done, 2 min 10 s so far, about 9 min left
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from winlab.cli import daily
from winlab.cli.glyphs import fit, shows_symbols
from winlab.cli.progress import describe, finished, plain_listener, total
from winlab.events import (
    Event,
    Listener,
    Note,
    StepChecking,
    StepEvent,
    StepFailed,
    StepProgress,
    StepStarted,
)
from winlab.history import page
from winlab.history.runs import OPEN, OVER, History, RunRecord, RunState, StepRecord, StepState

BESIDE = 2  # lines of the terminal that the view leaves free
LAB = "lab"  # the line of what belongs to no machine


@contextmanager
def view() -> Iterator[Listener]:
    """A listener that shows events on the standard error, for the length of a with-block; plain lines in a pipe."""
    console = Console(stderr=True, highlight=False)
    if not console.is_terminal or console.is_dumb_terminal:
        yield plain_listener()
        return
    live = LiveView(console)
    with Live(live, console=console, refresh_per_second=8, transient=True):
        yield live.tell


@dataclass(frozen=True)
class Row:
    """A machine, or the lab, and what is done for it now."""

    name: str
    steps: str
    text: str
    is_busy: bool


def rows(run: RunRecord, elapsed: float) -> list[Row]:
    """What a run is doing: a line for each machine, and one for each step that belongs to none.

    :param elapsed: seconds since it began.
    """
    groups: dict[str, list[StepRecord]] = {}
    for step in run.steps:
        groups.setdefault(run.group(step), []).append(step)
    found = []
    for name, steps in sorted(groups.items(), key=lambda item: item[0] == LAB):
        count = f"{sum(one.state in OVER for one in steps)} of {len(steps)}"
        busy = [_phase(one, name, elapsed) for one in steps if one.state in OPEN]
        if not busy:
            found.append(Row(name, count, _idle(steps), is_busy=False))
        elif name == LAB:
            found += [Row(name, count, text, is_busy=True) for text in busy]
        else:
            found.append(Row(name, count, "; ".join(busy), is_busy=True))
    return found


def _idle(steps: list[StepRecord]) -> str:
    states = {step.state for step in steps}
    if StepState.FAILED in states:
        return "failed"
    if states <= set(OVER):
        return "done"
    return "stopped" if StepState.STOPPED in states else "waits"


def _phase(step: StepRecord, name: str, elapsed: float) -> str:
    """A step at work: its verb, its time, what it reports. The node's name is in the line already."""
    title = step.planned.step.removesuffix(f" {name}")
    times = page.clock(elapsed - (step.begun or 0.0))
    usually = f", usually {page.clock(step.planned.measured)}" if step.planned.measured >= 1 else ""
    part = "" if step.fraction is None else f" {step.fraction:.0%}"
    text = "looking whether it is done" if step.state is StepState.CHECKING else " ".join(step.text.split())
    text = re.sub(rf"^waiting for {re.escape(name)} to answer at \S+: ", "", text)  # the phase of its boot says more
    return f"{title} {times}{usually}{part}" + (f": {text}" if text else "")


class LiveView:
    """Takes events, prints what stays as a log, and draws the rest whenever it is asked to."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._history = History()
        self._heard = time.monotonic()  # when the last event came
        self._outside: dict[tuple[str, str], tuple[StepEvent, float]] = {}  # steps of no run, and when they began
        self._spinner = Spinner("dots" if shows_symbols(sys.stderr) else "line")

    def tell(self, event: Event) -> None:
        """Take an event."""
        line = finished(event)
        if isinstance(event, Note) and event.repeats and not daily.is_new(event.text):
            line = None
        with self._lock:
            self._heard = time.monotonic()
            if self._history.take(event) is None and isinstance(event, StepEvent):
                self._take_outside(event)
        if line is not None:
            # not under the lock: printing renders this view again, which takes it
            style = "red" if isinstance(event, StepFailed) and not self._console.no_color else ""
            self._console.print(Text(fit(line, sys.stderr), style))

    def _take_outside(self, event: StepEvent) -> None:
        key = (event.lab, event.step)
        if isinstance(event, (StepChecking, StepStarted, StepProgress)):
            self._outside[key] = (event, self._heard - event.seconds)
        else:
            self._outside.pop(key, None)

    def __rich__(self) -> RenderableType:
        with self._lock:
            now = time.monotonic()
            lines = [
                Row("", "", describe(replace(event, seconds=now - begun)), is_busy=True)
                for event, begun in self._outside.values()
            ]
            last = self._history.runs[-1] if self._history.runs else None
            summary = ""
            if last is not None and last.state is RunState.RUNNING:
                elapsed = last.elapsed + now - self._heard
                lines += rows(last, elapsed)
                summary = total(last, elapsed)
            return self._drawn(lines, summary, now)

    def _drawn(self, lines: list[Row], summary: str, now: float) -> RenderableType:
        room = self._console.height - BESIDE - bool(summary)
        if len(lines) > room:  # machines that wait or are done are the least interesting
            lines = sorted(lines, key=lambda row: not row.is_busy)[: max(room, 1)]
        names = max((cell_len(row.name) for row in lines), default=0)
        counts = max((cell_len(row.steps) for row in lines), default=0)
        frames = self._spinner.frames
        mark = frames[int(now * 1000 / self._spinner.interval) % len(frames)]
        drawn: list[RenderableType] = []
        for row in lines:
            text = Text.assemble(mark if row.is_busy else " ", " ")
            if row.name:
                text.append(f"{row.name:<{names}}  {row.steps:>{counts}}  ")
            text.append(row.text, "red" if row.text == "failed" and not self._console.no_color else "")
            drawn.append(_one_line(text))
        if summary:
            drawn.append(_one_line(Text(f"  {summary}")))
        return Group(*drawn)


def _one_line(text: Text) -> Text:
    """A text that is never more than one line of the terminal."""
    text.plain = fit(text.plain, sys.stderr)
    text.no_wrap, text.overflow = True, "ellipsis" if shows_symbols(sys.stderr) else "crop"
    return text
