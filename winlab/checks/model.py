"""What checks are made of: an outcome, a result. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from winlab import stopping
from winlab.design.catalog import recipes
from winlab.design.plan.tags import Tag
from winlab.design.render.runtime_classes import BUILDS
from winlab.errors import ExitCode, Failure, NotFoundError, UsageError, WinlabError
from winlab.events import Listener, Note, StepDone, StepFailed, StepProgress, StepStarted

LONG = 400  # characters of a detail that are shown


class Outcome(StrEnum):
    """How a check ended. Only ``FAILED`` makes the command fail."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "known-unsupported"  # failed, as expected
    RECORDED = "recorded"  # failed, but nothing depends on it
    REHEARSAL = "not-in-a-rehearsal"  # needs real Windows, and the lab has the stand-in
    NOT_APPLICABLE = "not-applicable"  # the lab or the host does not have what it checks

    @property
    def untested(self) -> str:
        """A heading for rows that did not test anything; empty for the others."""
        why = {Outcome.REHEARSAL: "Need real Windows", Outcome.NOT_APPLICABLE: "Don't apply, or were not asked for"}
        return why.get(self, "")


class CheckFailed(Exception):
    """A check failed; the text says what was seen."""


class NotApplicable(Exception):
    """The lab does not have what a check is about; the text says what."""


@dataclass(frozen=True)
class RowResult:
    """How one check ended, and what was seen. ``source`` and ``target`` are display names."""

    id: str
    title: str
    source: str
    target: str
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0


def is_standin(tag: Tag) -> bool:
    """Whether a node's Windows is the stand-in of a rehearsal: the recipe of its image says so.

    The tag names the image that the node was made from. A name that is no longer in the catalog counts as real
    Windows, so that no check is skipped by mistake.
    """
    try:
        return recipes.get(tag.image).stand_in
    except (NotFoundError, UsageError):
        return False


def release_build(image: str) -> str | None:
    """The build of the release of Windows that an image is, as nodes' labels have it; None if it is no longer known."""
    try:
        return BUILDS[recipes.get(image).windows or ""]
    except (NotFoundError, UsageError, KeyError):
        return None


def choose(known: Sequence[str], only: str | None) -> set[str] | None:
    """The identifiers in a list like ``1,2,L4``; None if there is no list, which means all.

    :raises UsageError: one of them is unknown, or the list is empty.
    """
    if only is None:
        return None
    folded = {name.lower(): name for name in known}
    words = [word.strip() for word in only.split(",") if word.strip()]
    unknown = [word for word in words if word.lower() not in folded]
    if unknown or not words:
        raise UsageError(
            f"There is no check '{', '.join(unknown)}'." if unknown else "--only names no check.",
            cure=f"Choose one of: {', '.join(known)}. 'winlab test list' says what each checks.",
        )
    return {folded[word.lower()] for word in words}


def said(error: Exception) -> str:
    """An error's message as one line of limited length."""
    text = (error.why or error.what) if isinstance(error, WinlabError) else str(error)
    line = " ".join(text.split())
    return line if len(line) <= LONG else f"{line[: LONG - 4]} ..."


class Stage:
    """Reports one step to a listener; a :class:`winlab.events.Progress` while the step runs."""

    def __init__(self, tell: Listener, step: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._step = step
        self._clock = clock
        self._begun = clock()
        tell(StepStarted(step=step))

    @property
    def seconds(self) -> float:
        """How long the step has been running."""
        return self._clock() - self._begun

    def say(self, text: str, fraction: float | None = None) -> None:
        """Report the current work or wait.

        :raises Stopped: the work was asked to stop.
        """
        stopping.check()
        self._tell(StepProgress(step=self._step, text=text, seconds=self.seconds, fraction=fraction))

    def note(self, text: str) -> None:
        """Report a line that stays on the screen."""
        self._tell(Note(text=text))

    def end(self) -> None:
        """Report that the step is over."""
        self._tell(StepDone(step=self._step, seconds=self.seconds))

    def fail(self, failure: Failure) -> None:
        """Report that the step failed."""
        self._tell(StepFailed(step=self._step, seconds=self.seconds, failure=failure))

    def conclude(self, results: Iterable[RowResult]) -> None:
        """Report that checks are over, and which ones failed."""
        failed = [result for result in results if result.outcome is Outcome.FAILED]
        if failed:
            names = ", ".join(result.id for result in failed)
            what, why = f"These checks failed: {names}.", failed[0].detail
            self.fail(Failure(what, why, exit_code=int(ExitCode.CLUSTER), error="CheckFailed"))
        else:
            self.end()
