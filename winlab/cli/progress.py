"""Events as lines for people. :mod:`winlab.cli.live` shows them on a terminal."""

from __future__ import annotations

from winlab.cli.common import say
from winlab.errors import ExitCode, Failure
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
)
from winlab.history import left
from winlab.history.runs import OPEN, History, RunRecord, StepState
from winlab.printable import one_line

QUIET_SECONDS = 60.0  # in a pipe, a running step reports no more often than this
SHOWN_SKIP = 0.5  # a step that was already done gets no line, unless the check took this long
# A command of a single step that refuses what it was given has only its error to report, which follows
REFUSED = (ExitCode.USAGE, ExitCode.NOT_FOUND)
WIDEST = 300  # characters of a failure's reason that are shown at once; the full text comes at the end


def clock(seconds: float) -> str:
    """75 → ``1 min 15 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def about(seconds: float) -> str:
    """An estimate, no more exact than it is: 75 → ``1 min``, 8 → ``10 s``."""
    if seconds < 55:
        return f"{max(5, round(seconds / 5) * 5)} s"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} min" if minutes < 100 else f"{round(minutes / 60)} h"


def describe(event: StepEvent) -> str:
    """An event of a running step as one line."""
    text, fraction = (event.text, event.fraction) if isinstance(event, StepProgress) else ("", None)
    if isinstance(event, StepChecking):
        text = "looking whether it is done"
    line = f"{event.step}: {one_line(text)}" if text else event.step
    if fraction is not None:
        line += f" {fraction:.0%}"
    times = clock(event.seconds)
    if event.usual and not event.estimated:
        times += f", usually {clock(event.usual)}"
    return f"{line} ({times})"


def total(run: RunRecord, elapsed: float) -> str:
    """How far a run is: ``14 of 48 steps are done, 2 min 10 s so far, about 9 min left``.

    :param elapsed: seconds since it began.
    """
    rest = left.seconds(run, elapsed)
    guessed = any(step.planned.estimated for step in run.steps if step.state in (StepState.WAITING, *OPEN))
    rough = " (estimated)" if guessed and rest >= 60 else ""
    more = f", about {about(rest)} left{rough}" if rest >= 1 else ""
    return f"{run.done} of {len(run.steps)} steps are done, {clock(elapsed)} so far{more}"


def finished(event: Event) -> str | None:
    """The line that stays on the screen for an event; None if there is none."""
    if isinstance(event, StepDone):
        return f"✓ {event.step} ({clock(event.seconds)})" if event.seconds >= 1 else f"✓ {event.step}"
    if isinstance(event, StepSkipped) and event.seconds > SHOWN_SKIP:
        return f"= {event.step}: done already"
    if isinstance(event, StepFailed):
        if event.total == 1 and event.failure.exit_code in REFUSED:
            return None
        return f"✗ {event.step} ({clock(event.seconds)})\n  {_reason(event.failure)}"
    if isinstance(event, (Note, NodeTransport, NodeCrashed)):
        return f"! {one_line(event.text)}"
    return None


def _reason(failure: Failure) -> str:
    """What failed and why, in one line; the full error is printed when the command ends."""
    why = failure.why.strip().partition("\n")[0]
    text = one_line(f"{failure.what} {why}" if why else failure.what)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 4]} ..."


def plain_listener() -> Listener:
    """A listener for a pipe: one line for each step that ends, and one a minute for each that takes longer."""
    history = History()
    shown: dict[tuple[str, str], float] = {}  # seconds of a step at its last line

    def tell(event: Event) -> None:
        number = history.take(event)
        line = finished(event)
        if isinstance(event, StepProgress):
            key = (event.lab, event.step)
            if event.seconds - shown.get(key, 0.0) >= QUIET_SECONDS:
                shown[key] = event.seconds
                line = f"… {describe(event)}"
                if number is not None:
                    line += f"; {total(history.runs[number - 1], event.elapsed)}"
        elif isinstance(event, StepEvent):
            shown.pop((event.lab, event.step), None)
        if line is not None:
            say(line, error=True)

    return tell
