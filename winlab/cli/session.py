"""The session of one command: its options, what runs, what it printed, and what it prints last."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from winlab import events, settings
from winlab.cli import words
from winlab.cli.common import Output, drop_output, say
from winlab.cli.complete import complete_labs
from winlab.errors import ConflictError, Failure, LabError, NotFoundError, OffError, UsageError, WinlabError
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
from winlab.printable import within

REFUSALS = (UsageError, NotFoundError, ConflictError, OffError)  # their messages say everything


class Session:
    """The state of one command. With ``--output json`` it prints what docs/events.md describes."""

    def __init__(self) -> None:
        self.debug = False
        self.quiet = False  # no progress, no notes
        self.output = Output.TABLE
        self.from_file: frozenset[str] = frozenset()  # variables that stand for the user's settings file
        self.lab = ""  # that --lab names
        self.left_running = ""  # what an interrupt leaves running that is not a step: a sentence
        self.result: Any = None  # what a command with --output json found or did; :meth:`finish` prints it
        self._touched = ""  # the lab of the first step that began
        self._running: dict[tuple[str, str], None] = {}  # labs and steps that began and did not end, in their order
        self._has_lines = False  # events are printed as lines of JSON
        self._is_ended = False  # the last line is the end of a run that succeeded
        self._failed_run: RunEnded | None = None  # its end, which is to name the archive
        self._finished = False

    @contextmanager
    def shown(self, output: Output) -> Iterator[Listener]:
        """A listener that shows events for the length of a with-block: text on stderr, or JSON on stdout."""
        if output is Output.JSON:
            self._has_lines = True
            yield self._remembered(self._print)
            return
        if self.quiet:
            yield self._remembered(events.ignore)
            return
        from winlab.cli.progress import view

        with view() as show:
            yield self._remembered(show)

    def unfinished(self) -> str:
        """The steps of labs that began and did not end, such as ``volumes, boot node-1``."""
        return ", ".join(step for lab, step in list(self._running) if lab)

    def collect(self, failed: Exception) -> Path | None:
        """Make an archive for support about a failure, if a step of a lab had begun.

        Not if the user asked for what is impossible, and not if ``WINLAB_SUPPORT_SECONDS`` is 0. Ctrl-C, or trouble
        with the archive, means that there is none: the failure is what counts.
        """
        every = failed.exceptions if isinstance(failed, LabError) else (failed,)
        if not self._touched or all(isinstance(one, REFUSALS) for one in every):
            return None
        from winlab import Lab

        with suppress(KeyboardInterrupt), self.shown(Output.JSON if self._has_lines else Output.TABLE) as tell:
            try:
                if settings.support_seconds():
                    return Lab(self._touched).support(
                        failed=failed,
                        # not its notes: what the archive lacks is listed in it
                        listener=lambda event: tell(event) if isinstance(event, StepProgress) else None,
                    )
            except Exception as error:
                why = error.what if isinstance(error, WinlabError) else repr(error)
                tell(Note(lab=self._touched, text=f"There is no archive for support: {why}"))
        return None

    def finish(self, code: int, error: BaseException | None = None, support: Path | None = None) -> None:
        """Print what a command with ``--output json`` prints last. No other place decides what that is.

        A result without events is one document. Otherwise the last line is the result if there is one, or the end of
        the command; a failure's is the end.

        :param code: the exit code.
        :param error: why the command failed.
        :param support: the archive about the failure.
        """
        if self.output is not Output.JSON or self._finished:
            return
        self._finished = True
        by_line = self._has_lines or error is not None
        printed: list[Any] = []
        if by_line and not (self._is_ended and code == 0):
            ended = replace(self._failed_run or RunEnded(), exit_code=int(code), support=str(support or ""))
            if isinstance(error, Exception) and not ended.failures:
                ended = replace(ended, failures=Failure.each(error))
            printed.append(events.record(ended))
        if self.result is not None:
            result = {"event": "Result", "schema": events.SCHEMA, "result": self.result} if by_line else self.result
            printed.insert(len(printed) if error is None else 0, result)
        try:
            for one in printed:
                say(json.dumps(within(one), indent=None if by_line else 2, default=str))
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()

    def _remembered(self, show: Listener) -> Listener:
        def tell(event: Event) -> None:
            if isinstance(event, (StepChecking, StepStarted)):
                self._running[event.lab, event.step] = None
            elif isinstance(event, (StepSkipped, StepDone, StepFailed)):
                self._running.pop((event.lab, event.step), None)
            if isinstance(event, (StepStarted, StepDone, StepFailed)):
                self._touched = self._touched or self.lab or event.lab
            show(event)

        return tell

    def _print(self, event: Event) -> None:
        """Print an event as a line of JSON; but the end of a failed run waits for :meth:`finish`."""
        if isinstance(event, RunEnded) and event.exit_code:
            self._failed_run = event
            return
        self._is_ended = isinstance(event, RunEnded)
        say(json.dumps(events.record(event)))
        sys.stdout.flush()


_current: ContextVar[Session] = ContextVar("session")


def begin() -> Session:
    """A new session, which is the current one from now on."""
    session = Session()
    _current.set(session)
    return session


def current() -> Session:
    """The session of the command that runs."""
    return _current.get()


def checked_lab(value: str) -> str:
    """A lab's name as the user gave it.

    :raises UsageError: no lab can have it.
    """
    from winlab.design.plan.make import check_lab_name

    return check_lab_name(value, own=True)


def _choose_lab(value: str) -> str:
    current().lab = checked_lab(value)
    return value


def _choose_output(ctx: typer.Context, value: Output) -> Output:
    before = words.noted(ctx, "output")  # which an error of another option must know
    current().output = value if before is None or words.is_given(ctx, "output") else before
    return value


LabName = Annotated[
    str,
    typer.Option(
        "--lab",
        envvar="WINLAB_LAB",
        help="The lab's name.",
        autocompletion=complete_labs,
        metavar="NAME",
        callback=_choose_lab,
    ),
]
Format = Annotated[
    Output,
    # eager: it also decides how another option's error is printed
    typer.Option(
        "--output",
        "-o",
        envvar="WINLAB_OUTPUT",
        help="How to print the result.",
        callback=_choose_output,
        is_eager=True,
        metavar="table|json",
    ),
]
