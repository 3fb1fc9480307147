"""Shows events to people: live lines on a terminal, plain lines in a pipe."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from winlab.cli.common import say
from winlab.errors import Failure
from winlab.events import (
    Event,
    Listener,
    NodeCrashed,
    NodeTransport,
    Note,
    StepChecking,
    StepDone,
    StepEvent,
    StepFailed,
    StepProgress,
    StepSkipped,
    StepStarted,
)
from winlab.printable import one_line

QUIET_SECONDS = 20.0  # in a pipe, a running step reports no more often than this
SHOWN_SKIP = 0.5  # a step that was already done gets no line, unless the check took this long
WIDEST = 300  # characters of a failure's reason that are shown at once; the full text comes at the end


def clock(seconds: float) -> str:
    """75 → ``1 min 15 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def describe(event: StepEvent) -> str:
    """An event of a running step as one line."""
    text, fraction = (event.text, event.fraction) if isinstance(event, StepProgress) else ("", None)
    if isinstance(event, StepChecking):
        text = "looking whether it is done"
    line = f"{event.step}: {one_line(text)}" if text else event.step
    if fraction is not None:
        line += f" {fraction:.0%}"
    times = clock(event.seconds)
    if event.usual:
        times += f", usually {clock(event.usual)}"
    return f"{line} ({times})"


@contextmanager
def view() -> Iterator[Listener]:
    """A listener that shows events on the standard error, for the length of a with-block."""
    console = Console(stderr=True)
    if console.is_terminal:
        live = _LiveView(console)
        with Live(live, console=console, refresh_per_second=8, transient=True):
            yield live.tell
    else:
        yield _plain_listener()


def finished(event: Event) -> str | None:
    """The line that stays on the screen for an event; None if there is none."""
    if isinstance(event, StepDone):
        return f"✓ {event.step} ({clock(event.seconds)})" if event.seconds >= 1 else f"✓ {event.step}"
    if isinstance(event, StepSkipped) and event.seconds > SHOWN_SKIP:
        return f"= {event.step}: done already"
    if isinstance(event, StepFailed):
        return f"✗ {event.step} ({clock(event.seconds)})\n  {_reason(event.failure)}"
    if isinstance(event, (Note, NodeTransport, NodeCrashed)):
        return f"! {one_line(event.text)}"
    return None


def _reason(failure: Failure) -> str:
    """What failed and why, in one line; the full error is printed when the command ends."""
    why = failure.why.strip().partition("\n")[0]
    text = one_line(f"{failure.what} {why}" if why else failure.what)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."


@dataclass(frozen=True)
class _Shown:
    """A running step on the screen: its last event, when it began, its spinner."""

    event: StepEvent
    begun: float
    spinner: Spinner


class _LiveView:
    """The running steps below, the finished ones scrolling away above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], _Shown] = {}
        self._count = ""

    def tell(self, event: Event) -> None:
        line = finished(event)
        with self._lock:
            self._count = f"{event.done} of {event.total} steps are done" if event.total else ""
            if isinstance(event, StepEvent):
                self._take(event)
        if line is not None:
            # not under the lock: printing renders this view again, which takes it
            self._console.print(Text(line))

    def _take(self, event: StepEvent) -> None:
        key = (event.lab, event.step)
        if isinstance(event, (StepChecking, StepStarted, StepProgress)):
            begun = time.monotonic() - event.seconds
            spinner = self._running[key].spinner if key in self._running else Spinner("dots")
            self._running[key] = _Shown(event, begun, spinner)
        elif isinstance(event, (StepSkipped, StepDone, StepFailed)):
            self._running.pop(key, None)

    def __rich__(self) -> RenderableType:
        with self._lock:
            lines: list[RenderableType] = []
            for one in self._running.values():
                now = replace(one.event, seconds=time.monotonic() - one.begun)
                one.spinner.update(text=Text(describe(now), overflow="ellipsis", no_wrap=True))
                lines.append(one.spinner)
            if lines and self._count:
                lines.append(Text(f"  {self._count}", style="dim"))
            return Group(*lines)


def _plain_listener() -> Listener:
    last: dict[tuple[str, str], tuple[float, str]] = {}

    def tell(event: Event) -> None:
        line = finished(event)
        if isinstance(event, StepProgress):
            key = (event.lab, event.step)
            when, text = last.get(key, (0.0, ""))
            if time.monotonic() - when > (QUIET_SECONDS if text == event.text or event.fraction else 5.0):
                last[key] = (time.monotonic(), event.text)
                line = f"… {describe(event)}"
        if line is not None:
            say(line, error=True)

    return tell
