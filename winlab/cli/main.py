"""The command ``winlab``."""

from __future__ import annotations

import os
import sys
import termios
import threading
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from winlab.cli import (
    bundle,
    cluster,
    common,
    failure,
    fault,
    host,
    image,
    iso,
    lab,
    node,
    power,
    reconcile,
    repair,
    signals,
    spec,
    support,
    test,
    watch,
)
from winlab.errors import ExitCode, LabError, WinlabError
from winlab.version import __version__


class _Interrupted(Exception):
    """Ctrl-C, or a signal that counts as one, in a form that Typer passes on: it would end without a message."""


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise _Interrupted from error


app = typer.Typer(
    name="winlab",
    cls=_Commands,
    help="A hybrid Kubernetes lab (Linux controllers, Windows workers) on your own hypervisor, in one command.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
lab.register(app)
node.register(app)
power.register(app)
cluster.register(app)
watch.register(app)
repair.register(app)
reconcile.register(app)
host.register(app)
app.add_typer(support.app, name="support")
app.add_typer(fault.app, name="fault")
app.add_typer(image.app, name="image")
app.add_typer(iso.app, name="iso")
app.add_typer(bundle.app, name="bundle")
app.add_typer(spec.app, name="spec")
app.add_typer(test.app, name="test")

SAYING = 0.5  # seconds to say that a command ends without what did not stop
CURSOR = "\x1b[?25h"  # shows it again: the view of a run hides it
_debug = False
_terminal: list[Any] | None = None  # its settings when the command began; None if there is none


def _version(wanted: bool) -> None:
    if wanted:
        common.say(f"winlab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", envvar="WINLAB_DEBUG", help="Show tracebacks of errors.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,  # noqa: ARG001
) -> None:
    global _debug
    _debug = debug


def explain(error: WinlabError) -> str:
    """An error with its causes, as it is printed; for a group, each error in turn."""
    if isinstance(error, LabError):
        return "\n".join(
            explain(one) if isinstance(one, WinlabError) else f"winlab: {type(one).__name__}: {one}"
            for one in error.exceptions
        )
    lines = [f"winlab: {error.what}"]
    lines += [f"  {name + ':':<9} {text}" for name, text in error.details()]
    for cause in error.causes:
        if isinstance(cause, WinlabError):
            lines += ["and: " + line for line in explain(cause).removeprefix("winlab: ").splitlines()]
    return "\n".join(lines)


def _end_json(error: BaseException) -> None:
    """With ``--output json``, print the whole failure as the last line of standard output."""
    if common.chosen_output is common.Output.JSON:
        from winlab.cli import progress

        progress.end(error)


def main() -> None:
    """Run the command line; errors become one message and a documented exit code (docs/exit-codes.md)."""
    global _terminal
    with suppress(termios.error, OSError):
        _terminal = termios.tcgetattr(0)
    with signals.as_interrupts(late=_end_late):
        _main()


def _end_late() -> None:
    """End at once: a library keeps this command, or a step of it, waiting for an answer. The kernel frees its locks."""
    telling = threading.Thread(target=_tell_late, daemon=True)
    telling.start()
    with suppress(termios.error, OSError):
        if _terminal is not None:
            termios.tcsetattr(0, termios.TCSANOW, _terminal)  # 'winlab serial' has it raw
    telling.join(SAYING)  # what reads the output may hang, too, and a terminal that is gone is an error
    os._exit(ExitCode.INTERRUPTED)


def _tell_late() -> None:
    common.say(
        f"winlab: interrupted, and ended without what did not stop.{_after_interrupt()}\n"
        "  why:      Some of it did not end within 5 s: a library or a service may not answer.\n"
        "  cure:     A service of the host may hang (libvirtd, OVN's): end it, then 'sudo winlab host setup'.",
        error=True,
    )
    _end_json(KeyboardInterrupt())
    sys.stdout.flush()
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        sys.__stderr__.write(CURSOR)
        sys.__stderr__.flush()


def _main() -> None:
    try:
        try:
            app()
        except _Interrupted as error:
            raise KeyboardInterrupt from error
        except Exception as error:
            _end_json(error)
            raise
    except WinlabError as error:
        if _debug:
            raise
        common.say(explain(error), error=True)
        _name_archive()
        sys.exit(error.exit_code)
    except KeyboardInterrupt as error:
        _end_json(error)
        common.say(f"winlab: interrupted.{_after_interrupt()}", error=True)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if _debug:
            raise
        common.say(
            f"winlab: an unexpected {type(error).__name__}: {error}\n"
            "  cure:     run the command again with 'winlab --debug ...' and report what it prints.",
            error=True,
        )
        _name_archive()
        sys.exit(ExitCode.FAILED)


def _after_interrupt() -> str:
    """What goes on after an interrupt, and how to go on."""
    if failure.left_running:
        return f"\n  running:  {failure.left_running}"
    left = failure.unfinished()
    running = f"\n  running:  Machines, and what these steps began in them: {left}" if left else ""
    return f" Nothing is lost: the same command carries on.{running}"


def _name_archive() -> None:
    """Say where everything about a failure is, as the last line."""
    if failure.archive is not None:
        common.say(f"everything about it: {failure.archive}", error=True)
