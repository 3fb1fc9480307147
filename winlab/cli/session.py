"""The session of one command: the options that all commands have, what runs, its events and its result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from winlab import files, settings
from winlab.cli import result, table, words
from winlab.cli.common import Output, drop_output, say
from winlab.cli.complete import complete_labs
from winlab.errors import ConflictError, ExitCode, Failure, LabError, NotFoundError, OffError, UsageError, WinlabError

if TYPE_CHECKING:
    from winlab.events import Event, Listener, RunEnded

REFUSALS = (UsageError, NotFoundError, ConflictError, OffError)  # their messages say everything


class Session:
    """The state of one command. It prints results for programs (docs/output.md), and writes events (docs/events.md)."""

    def __init__(self) -> None:
        self.debug = False
        self.quiet = False  # no progress, no notes
        self.output = Output.TABLE
        self.from_file: frozenset[str] = frozenset()  # variables that stand for the user's settings file
        self.lab = ""  # that the command line names
        self.is_parsed = False  # the options of the command have been read
        self.left_running = ""  # what an interrupt leaves running that is not a step: a sentence
        self.misused: tuple[Failure, ...] = ()  # why the command line can't be parsed
        self._document: dict[str, Any] | None = None  # the result, which :meth:`finish` prints
        self._streams = False  # documents were printed as they came
        self._events: TextIO | None = None  # where --events writes
        self._touched = ""  # the lab of the first step that began
        self._running: dict[tuple[str, str], None] = {}  # labs and steps that began and did not end, in their order
        self._is_ended = False  # the last event is the end of a run that succeeded
        self._failed_run: RunEnded | None = None  # its end, which is to name the archive
        self._finished = False

    @property
    def for_people(self) -> bool:
        """Whether people read the output, and not a program."""
        return self.output not in (Output.JSON, Output.YAML, Output.NAME)

    def answer(self, kind: type, items: Iterable[Any]) -> bool:
        """Set the result of the command; :meth:`finish` prints it for programs.

        :param kind: a class of :mod:`winlab.cli.kinds`.
        :param items: instances of it, or their fields; not looked at if people read the output.
        :returns: whether a program reads the output. If not, the command prints its result for people.
        """
        if self.for_people:
            return False
        self._document = result.of(kind, items)
        return True

    def stream(self, kind: type, item: Any) -> bool:
        """Print one of several documents at once, for a command that does not end by itself.

        :returns: as for :meth:`answer`.
        """
        if self.for_people:
            return False
        self._streams = True
        say(result.text(result.of(kind, [item]), self.output, by_line=True), end="")
        sys.stdout.flush()
        return True

    def keep_apart(self, file: Path | None) -> None:
        """Check that a file that the command writes is not the output that a program reads the result from.

        :raises UsageError: it is.
        """
        if file is not None and files.is_stdout(file) and not self.for_people:
            raise UsageError(
                "The result and what the command writes can't be the same output.", cure="Name a file in place of '-'."
            )

    @contextmanager
    def shown(self) -> Iterator[Listener]:
        """A listener for the length of a with-block: it shows events on the standard error, and --events has them."""
        if self.quiet:
            from winlab.events import ignore

            yield self._remembered(ignore)
            return
        from winlab.cli.live import view

        with view() as show:
            yield self._remembered(show)

    def record_events(self, file: Path) -> None:
        """Write all events to a file, as lines of JSON (docs/events.md).

        :raises UsageError: it can't be written, or is the standard output.
        """
        if files.is_stdout(file):
            raise UsageError(
                "Events can't go to the standard output.",
                why="The result goes there.",
                cure="Name a file, or an open descriptor: --events /dev/fd/3.",
            )
        try:
            self._events = files.open_named(file)
        except OSError as error:
            raise UsageError(f"'{file}' can't be written.", why=str(error)) from error

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
        from winlab.events import Note, StepProgress

        with suppress(KeyboardInterrupt), self.shown() as tell:
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
        """Print the document for programs, the result or the failure, and write the last event.

        :param code: the exit code.
        :param error: why the command failed.
        :param support: the archive about the failure.
        """
        if self._finished:
            return
        self._finished = True
        failures = self._failed_run.failures if self._failed_run else ()
        if not failures:
            failures = Failure.each(error) if isinstance(error, Exception) else self.misused
        if self._events is not None and not (self._is_ended and code == 0):
            from winlab.events import RunEnded

            ended = replace(self._failed_run or RunEnded(), exit_code=int(code), failures=failures)
            self._write(replace(ended, support=str(support or "")))
        if self.for_people:
            return
        document = self._document
        if error is not None or (code and document is None and not self._streams):
            document = result.of_failure(int(code), failures or (_ended(code),), str(support or ""))
        try:
            if document is not None:
                say(result.text(document, self.output, by_line=self._streams), end="")
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()

    def _remembered(self, show: Listener) -> Listener:
        from winlab.events import StepChecking, StepDone, StepFailed, StepSkipped, StepStarted

        def tell(event: Event) -> None:
            if isinstance(event, (StepChecking, StepStarted)):
                self._running[event.lab, event.step] = None
            elif isinstance(event, (StepSkipped, StepDone, StepFailed)):
                self._running.pop((event.lab, event.step), None)
            if isinstance(event, (StepStarted, StepDone, StepFailed)):
                self._touched = self._touched or self.lab or event.lab
            if self._events is not None:
                self._record(event)
            show(event)

        return tell

    def _record(self, event: Event) -> None:
        """Write an event; but the end of a failed run waits for :meth:`finish`."""
        from winlab.events import RunEnded

        if isinstance(event, RunEnded) and event.exit_code:
            self._failed_run = event
            return
        self._is_ended = isinstance(event, RunEnded)
        self._write(event)

    def _write(self, event: Event) -> None:
        from winlab.events import record

        assert self._events is not None
        try:
            self._events.write(json.dumps(record(event)) + "\n")
        except BrokenPipeError:  # its reader has seen enough
            drop_output(self._events)


def _ended(code: int) -> Failure:
    """Why a command ended without an error."""
    if code == ExitCode.INTERRUPTED:
        return Failure("The command was interrupted.", cure="Run it again: it resumes.", exit_code=code)
    return Failure("The command ended early.", why="The standard error has more.", exit_code=code)


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
    from winlab.design.plan.lab_name import check_lab_name

    return check_lab_name(value, own=True)


def _choose_lab(value: str) -> str:
    current().lab = checked_lab(value)
    return value


def _choose_output(ctx: typer.Context, value: Output) -> Output:
    if words.is_given(ctx, "output"):
        words.note(ctx, "output", value)
    elif (before := words.noted(ctx, "output")) is not None:
        value = before
    table.wide.set(value is Output.WIDE)
    current().output = Output.TABLE if value is Output.WIDE else value
    return value


def _choose_events(ctx: typer.Context, value: Path | None) -> Path | None:
    if value is not None:
        is_open = words.noted(ctx, "events") == value
        words.note(ctx, "events", value)
        if not is_open:
            current().record_events(value)
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
        help="How to print the result: table, wide, json, yaml or name.",
        callback=_choose_output,
        is_eager=True,
        expose_value=False,
        metavar="FORMAT",
    ),
]
Events = Annotated[
    Path | None,
    typer.Option(
        "--events",
        allow_from_autoenv=False,
        help="Also write progress to this file, as JSON lines.",
        metavar="FILE",
        readable=False,  # it may be the end of a pipe that another user opened
        callback=_choose_events,
        is_eager=True,  # it also has the error of another option
        expose_value=False,
    ),
]
