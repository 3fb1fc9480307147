"""``winlab support [LAB]`` collects what others need to diagnose a lab; ``support explain FILE`` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from winlab import files, settings
from winlab.cli.app import App, Group, settle
from winlab.cli.common import say
from winlab.cli.complete import complete_labs
from winlab.cli.session import LabName, current
from winlab.cli.words import note_lab

if TYPE_CHECKING:
    from winlab import Explained

EXPLAIN = "explain"


class _Support(Group):
    """A command with an argument that is also a group: the only word that is not a lab's name is ``explain``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags and the lab; of ``explain`` that is up to the command."""
        ctx.meta[EXPLAIN] = args[:1] == [EXPLAIN]
        ctx.allow_interspersed_args = not ctx.meta[EXPLAIN]
        rest: list[str] = super().parse_args(ctx, args)
        if not ctx.meta[EXPLAIN]:
            settle(ctx)
        return rest

    def get_params(self, ctx: Any) -> list[Any]:
        """The flags and the argument, unless the first word is a command."""
        own = list(super().get_params(ctx))
        return [one for one in own if one.name == "help"] if ctx.meta.get(EXPLAIN) else own


app = App(cls=_Support, invoke_without_command=True)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="support")


def _complete() -> list[str]:
    """Names of labs, and the command."""
    return [*complete_labs(), EXPLAIN]


@app.callback()
def support(
    ctx: typer.Context,
    _word: Annotated[
        str | None,
        typer.Argument(
            help="The lab; use --lab for a lab called 'explain'. Default: lab.",
            metavar="[LAB]",
            autocompletion=_complete,
            callback=note_lab,
            show_default=False,
        ),
    ] = None,
    lab: LabName = settings.DEFAULT_LAB,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The file to write, or '-'; default: one in the state folder.", metavar="FILE"),
    ] = None,
) -> None:
    """Collect everything that helps to diagnose a lab into one archive, with secrets removed.

    Examples:
      winlab support
      winlab support ci --to ci.tar.gz
    """
    if ctx.invoked_subcommand is not None:
        return
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds
    from winlab.events import Event, Note

    current().keep_apart(to)
    own, missing = Lab(lab), list[str]()
    with current().shown() as tell:

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                missing.append(event.text.removeprefix("not in the archive: "))
            tell(event)

        path = own.support(to, listener=listen)
    if not current().for_people:
        made = kinds.Archive(name=str(path), lab=own.name, bytes=path.stat().st_size, missing=missing)
        current().answer(kinds.Archive, [made])
    elif not files.is_stream(path):
        say(path)


@app.command()
def explain(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A log of a serial port, of Windows Setup or of the bootstrap; or an archive of 'winlab support'.",
            show_default=False,
        ),
    ],
) -> None:
    """Find known causes in a log or an archive, and name their cures.

    Examples:
      winlab support explain ci.tar.gz
      winlab support explain serial.log
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    explained = Lab.explain(path)
    if not current().answer(kinds.Explanation, [{"name": str(path), **explained.document()}]):
        _print(explained)


def _print(explained: Explained) -> None:
    for shown in explained.causes:
        cause = shown.cause
        say(f"{cause.what}")
        say(f"  cause:    {cause.name} ({cause.effect.value})")
        say(f"  why:      {cause.why}")
        say(f"  cure:     {cause.cure}")
        for line in shown.evidence:
            say(f"  seen:     {line.log}:{line.number}: {line.text}")
        if more := shown.lines - len(shown.evidence):
            say(f"            and {more} more {'line' if more == 1 else 'lines'}")
        say("")
    count = f"{explained.logs} {'log' if explained.logs == 1 else 'logs'}"
    if not explained.causes:
        say(f"No known cause found in '{explained.file}' ({count}, {explained.known} causes checked).")
        say("Something may still be wrong: 'winlab docs first-run' says what to send.")
    if explained.left:
        say(f"'{explained.file}': {explained.left}.", error=True)
