"""What a command that failed leaves for support: an archive about its lab, whose path ends the message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from winlab import settings
from winlab.cli import common
from winlab.errors import UsageError, WinlabError
from winlab.events import (
    Event,
    Listener,
    Note,
    RunEnded,
    StepChecking,
    StepDone,
    StepFailed,
    StepProgress,
    StepSkipped,
    StepStarted,
)

archive: Path | None = None  # of the command that failed
left_running = ""  # what goes on by itself after an interrupt: a sentence
_running: dict[tuple[str, str], None] = {}  # labs and steps that began and did not end, in their order


class _Watched:
    """Passes events on, but the end of a failed run: it is to name the archive."""

    def __init__(self, tell: Listener) -> None:
        self._tell = tell
        self._end: RunEnded | None = None
        self.lab = ""  # empty until a step of a lab has begun

    def tell(self, event: Event) -> None:
        _remember(event)
        if isinstance(event, RunEnded) and event.failures:
            self._end = event
            return
        if isinstance(event, (StepStarted, StepDone, StepFailed)):
            self.lab = self.lab or common.chosen_lab or event.lab
        self._tell(event)

    def progress(self, event: Event) -> None:
        """Pass on how far the archive is; what it lacks is said in it."""
        if isinstance(event, StepProgress):
            self._tell(event)

    def end(self) -> None:
        """Pass on the end of the run, if it was held back."""
        if self._end is not None:
            self._tell(replace(self._end, support=str(archive or "")))


@contextmanager
def watched(tell: Listener) -> Iterator[Listener]:
    """A listener for the length of a with-block. If the block fails once a step has begun, an archive is made.

    Not for bad input or an interrupt; nor if ``WINLAB_SUPPORT_SECONDS`` is 0.
    """
    global archive
    archive = None
    _running.clear()
    watch = _Watched(tell)
    try:
        yield watch.tell
    except Exception as error:
        try:
            if watch.lab and not isinstance(error, UsageError):
                archive = _collected(watch, error)
        finally:
            watch.end()
        raise


def leave_running(what: str) -> None:
    """Have an interrupt say what of a command that is no step goes on by itself."""
    global left_running
    left_running = what


def unfinished() -> str:
    """The steps that began and did not end, such as ``volumes, boot node-1``."""
    return ", ".join(step for _, step in list(_running))


def _remember(event: Event) -> None:
    if isinstance(event, (StepChecking, StepStarted)):
        _running[event.lab, event.step] = None
    elif isinstance(event, (StepSkipped, StepDone, StepFailed)):
        _running.pop((event.lab, event.step), None)


def _collected(watch: _Watched, failed: Exception) -> Path | None:
    """The archive; None if it can't be made, or the user does not want to wait for it: the failure is what counts."""
    from winlab import Lab

    try:
        if not settings.support_seconds():
            return None
        return Lab(watch.lab).support(failed=failed, listener=watch.progress)
    except KeyboardInterrupt:
        return None
    except Exception as error:
        why = error.what if isinstance(error, WinlabError) else repr(error)
        watch.tell(Note(lab=watch.lab, text=f"There is no archive for support: {why}"))
        return None
