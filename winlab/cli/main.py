"""The command ``winlab``."""

from __future__ import annotations

import io
import os
import sys
import termios
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any

import typer

from winlab import files
from winlab.cli import defaults, manual, signals, tree, words
from winlab.cli.app import App, Commands, Group
from winlab.cli.common import Output, drop_output, say
from winlab.cli.result import requested
from winlab.cli.session import Events, Format, Session, begin, checked_lab, current
from winlab.cli.sudo import runnable
from winlab.errors import ExitCode, Failure, HostError, LabError, UsageError, WinlabError
from winlab.printable import indented
from winlab.version import __version__


class _Interrupted(Exception):
    """Ctrl-C, or a signal that acts like it, in a form that Typer passes on: Typer would end without a message."""


class _Commands(Group):
    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "commands": Commands()})

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The names of the commands."""
        return list(self.commands)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the options before the command."""
        with _explained():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            with _explained():
                return super().invoke(ctx)
        except BrokenPipeError:  # Typer would end with 1
            drop_output()
            raise typer.Exit(ExitCode.CLOSED) from None
        except KeyboardInterrupt as error:
            raise _Interrupted from error


@contextmanager
def _explained() -> Iterator[None]:
    """Have the error of a command line that can't be parsed in the format that it asks for, wherever that stands.

    What Typer says about it is kept for programs; for people Typer prints it.
    """
    try:
        yield
    except Exception as error:
        session = current()
        is_typers = hasattr(error, "format_message")  # Typer's own errors have it
        if is_typers:
            context = getattr(error, "ctx", None)
            where = context.command_path if context else "winlab"
            what, cure = error.format_message(), f"See '{where} --help'."  # type: ignore[attr-defined]
            session.misused = (Failure(what, cure=cure, exit_code=int(ExitCode.USAGE), error="UsageError"),)
        if session.for_people and (is_typers or (isinstance(error, UsageError) and not session.is_parsed)):
            session.output = requested(sys.argv[1:])
        raise


app = App(
    name="winlab",
    cls=_Commands,
    help=tree.SUMMARY,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WINLAB"},
)

SAYING = 0.5  # seconds to say that a command ends without what did not stop
WHAT, TEXT = 8, 12  # the columns of an error's sentence and of its details: a guest may have written lines of them
CURSOR = "\x1b[?25h"  # shows it again: the view of a run hides it


def _version(wanted: bool) -> None:
    if wanted:
        say(f"winlab {__version__}")
        raise typer.Exit


def _quiet(wanted: bool) -> None:
    current().quiet |= wanted


def _debug(wanted: bool) -> None:
    current().debug |= wanted


@app.callback()
def _options(  # every command has those of tree.SHARED, too
    ctx: typer.Context,
    lab: Annotated[
        str | None, typer.Option("--lab", metavar="NAME", allow_from_autoenv=False, help="The lab's name.")
    ] = None,
    output: Format = Output.TABLE,  # noqa: ARG001
    events: Events = None,  # noqa: ARG001
    quiet: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--quiet", "-q", envvar="WINLAB_QUIET", expose_value=False, callback=_quiet, help="No progress."),
    ] = False,
    debug: Annotated[  # noqa: ARG001
        bool,
        typer.Option("--debug", envvar="WINLAB_DEBUG", expose_value=False, callback=_debug, help="Show tracebacks."),
    ] = False,
    version: Annotated[  # noqa: ARG001
        bool,
        typer.Option(
            "--version", "-V", callback=_version, is_eager=True, allow_from_autoenv=False, help="Its version."
        ),
    ] = False,
) -> None:
    if lab is not None:
        words.note(ctx, "lab", checked_lab(lab))


def explain(error: WinlabError) -> str:
    """An error with its causes, as it is printed; for a group, each error in turn."""
    if isinstance(error, LabError):
        return "\n".join(
            explain(one)
            if isinstance(one, WinlabError)
            else f"winlab: {type(one).__name__}: {indented(str(one), WHAT)}"
            for one in error.exceptions
        )
    lines = [f"winlab: {indented(error.what, WHAT)}"]
    lines += [f"  {name + ':':<9} {indented(runnable(text), TEXT)}" for name, text in error.details()]
    for cause in error.causes:
        if isinstance(cause, WinlabError):
            lines += ["and: " + line for line in explain(cause).removeprefix("winlab: ").splitlines()]
    return "\n".join(lines)


def main() -> None:
    """Run the command line; errors become one message and a documented exit code (docs/exit-codes.md)."""
    session, terminal = begin(), None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(
            errors="backslashreplace"
        )  # text from outside may have what the terminal's encoding lacks
    with suppress(termios.error, OSError):
        terminal = termios.tcgetattr(0)
    with signals.as_interrupts(late=lambda: _end_late(session, terminal)):
        code = _run(session)
    sys.exit(code)


def _end_late(session: Session, terminal: list[Any] | None) -> None:
    """End at once: a library keeps this command, or a step of it, waiting for an answer. The kernel frees its locks.

    :param terminal: its settings when the command began; None if there is none.
    """
    telling = threading.Thread(target=_tell_late, args=(session,), daemon=True)
    telling.start()
    with suppress(termios.error, OSError):
        if terminal is not None:
            termios.tcsetattr(0, termios.TCSANOW, terminal)  # 'winlab serial' has it raw
    telling.join(SAYING)  # what reads the output may hang, too, and a terminal that is gone is an error
    os._exit(ExitCode.INTERRUPTED)


def _tell_late(session: Session) -> None:
    say(
        f"winlab: interrupted, and ended without what did not stop.{_after_interrupt(session)}\n"
        "  why:      Some of it did not end within 5 s: a library or a service may not answer.\n"
        "  cure:     A service of the host may hang (libvirtd, OVN's): end it, then 'sudo winlab host setup'.",
        error=True,
    )
    session.finish(ExitCode.INTERRUPTED, KeyboardInterrupt())
    sys.stdout.flush()
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        sys.__stderr__.write(CURSOR)
        sys.__stderr__.flush()


def _run(session: Session) -> int:
    """Run the command, and explain why if it fails; its exit code."""
    failed: Exception | KeyboardInterrupt | None = None
    code, archive = int(ExitCode.OK), None
    try:
        manual.prepare_completion()
        with defaults.applied() as session.from_file:
            app(prog_name=manual.PROGRAM)
        sys.stdout.flush()
    except SystemExit as ended:  # Typer ends a command this way
        code = int(ended.code or 0)
    except (_Interrupted, KeyboardInterrupt):
        code, failed = ExitCode.INTERRUPTED, KeyboardInterrupt()
    except Exception as error:
        failed = _of_output(error)
        code = failed.exit_code if isinstance(failed, WinlabError) else ExitCode.FAILED
    if isinstance(failed, Exception):
        if session.debug:
            say("".join(traceback.format_exception(failed)), end="", error=True)
        say(explain(failed) if isinstance(failed, WinlabError) else _explain_bug(failed), error=True)
        archive = session.collect(failed)
    try:
        session.finish(code, failed, archive)
    except OSError as error:
        failed = _of_output(error)
        if not isinstance(failed, WinlabError):
            raise
        say(explain(failed), error=True)
        code = failed.exit_code
    if isinstance(failed, KeyboardInterrupt):
        say(f"winlab: interrupted.{_after_interrupt(session)}", error=True)
    if archive is not None:
        say(f"everything about it: {archive}", error=True)
    return code


def _of_output(error: Exception) -> Exception:
    """*error*, or what it means if the standard output can't be written: such an error names no file."""
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in files.FULL:
        return error
    drop_output()  # what is left of it would fail again
    return HostError(
        "The output can't be written.",
        why=str(error),
        cure="Free some space where the output goes, and run the command again.",
    )


def _explain_bug(error: Exception) -> str:
    return (
        f"winlab: an unexpected {type(error).__name__}: {indented(str(error), WHAT)}\n"
        "  cure:     run the command again with 'winlab --debug ...' and report what it prints."
    )


def _after_interrupt(session: Session) -> str:
    """What keeps running after an interrupt, and how to resume."""
    if session.left_running:
        return f"\n  running:  {session.left_running}"
    left = session.unfinished()
    running = f"\n  running:  Machines, and what these steps began in them: {left}" if left else ""
    return f" Nothing is lost: the same command resumes.{running}"
