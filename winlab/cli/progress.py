"""How events are shown: live lines on a terminal, plain lines in a pipe, JSON lines for machines."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from winlab.cli.common import Output
from winlab.events import Event, Kind, Listener

QUIET_SECONDS = 20.0  # in a pipe, a running step says something no more often than this
SHOWN_SKIP = 0.5  # steps that were done already are not worth a line, unless looking took this long


def clock(seconds: float) -> str:
    """75 → ``1 min 15 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def describe(event: Event) -> str:
    """An event of a running step as one line."""
    text = f"{event.step}: {event.text}" if event.text else event.step
    if event.fraction is not None:
        text += f" {event.fraction:.0%}"
    times = clock(event.seconds)
    if event.usual:
        times += f", usually {clock(event.usual)}"
    return f"{text} ({times})"


@contextmanager
def shown(output: Output) -> Iterator[Listener]:
    """A listener that shows events, for the length of a with-block: for people on stderr, JSON on stdout."""
    if output is Output.JSON:
        yield lambda event: print(json.dumps(asdict(event)), flush=True)
        return
    console = Console(stderr=True)
    if console.is_terminal:
        view = _LiveView(console)
        with Live(view, console=console, refresh_per_second=8, transient=True):
            yield view.tell
    else:
        yield _plain_listener()


def _finished(event: Event) -> str | None:
    if event.kind is Kind.DONE:
        return f"✓ {event.step} ({clock(event.seconds)})" if event.seconds >= 1 else f"✓ {event.step}"
    if event.kind is Kind.SKIPPED and event.seconds > SHOWN_SKIP:
        return f"= {event.step}: done already"
    if event.kind is Kind.FAILED:
        return f"✗ {event.step} ({clock(event.seconds)})"
    if event.kind is Kind.NOTE:
        return f"! {event.text}"
    return None


class _LiveView:
    """The running steps below, the finished ones scrolling away above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Event, float, Spinner]] = {}

    def tell(self, event: Event) -> None:
        line = _finished(event)
        with self._lock:
            if line is not None or event.kind is Kind.SKIPPED:
                self._running.pop(event.step, None)
            elif event.kind in (Kind.CHECKING, Kind.STARTED, Kind.PROGRESS):
                begun = time.monotonic() - event.seconds
                spinner = self._running[event.step][2] if event.step in self._running else Spinner("dots")
                self._running[event.step] = (event, begun, spinner)
        if line is not None:
            # not under the lock: printing renders this view anew, which takes it
            self._console.print(Text(line))

    def __rich__(self) -> RenderableType:
        with self._lock:
            lines: list[RenderableType] = []
            for event, begun, spinner in self._running.values():
                now = Event(event.kind, event.step, event.text, time.monotonic() - begun, event.usual, event.fraction)
                spinner.update(text=Text(describe(now), overflow="ellipsis", no_wrap=True))
                lines.append(spinner)
            return Group(*lines)


def _plain_listener() -> Listener:
    last: dict[str, tuple[float, str]] = {}

    def tell(event: Event) -> None:
        line = _finished(event)
        if line is None and event.kind is Kind.PROGRESS:
            when, text = last.get(event.step, (0.0, ""))
            if time.monotonic() - when > (QUIET_SECONDS if text == event.text or event.fraction else 5.0):
                last[event.step] = (time.monotonic(), event.text)
                line = f"… {describe(event)}"
        if line is not None:
            print(line, file=sys.stderr, flush=True)

    return tell
