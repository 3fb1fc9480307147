"""The command that collects what others need to find a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli.common import Format, LabName, Output, print_json, say
from winlab.cli.complete import complete_labs


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command()(support)


def support(
    name: Annotated[
        str | None, typer.Argument(help="The lab's name.", metavar="LAB", autocompletion=complete_labs)
    ] = None,
    lab: LabName = settings.DEFAULT_LAB,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The file to write; by default one in the state folder.", metavar="FILE"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Collect everything that helps to find a fault of a lab into one archive, without its secrets."""
    from winlab import Lab
    from winlab.cli.progress import shown
    from winlab.errors import UsageError
    from winlab.events import Event, Note

    if name is not None and lab not in (name, settings.DEFAULT_LAB):
        raise UsageError(f"Two labs are named: '{name}' and '{lab}'.", cure="Name one.")
    own, missing = Lab(name or lab), list[str]()
    with shown(Output.TABLE) as tell:  # on the standard error

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                missing.append(event.text.removeprefix("not in the archive: "))
            tell(event)

        path = own.support(to, listener=listen)
    if output is Output.JSON:
        print_json({"lab": own.name, "archive": str(path), "bytes": path.stat().st_size, "missing": missing})
    else:
        say(path)
