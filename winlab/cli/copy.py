"""winlab cp: files and folders into nodes, out of them, and between them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli import streams
from winlab.cli.common import say
from winlab.cli.complete import complete_places
from winlab.cli.session import LabName, current
from winlab.cli.words import bare_node
from winlab.errors import ExitCode

OF_LAB = re.compile(r"[a-z][a-z0-9-]*/[a-z][a-z0-9-]*:")  # begins LAB/NODE:PATH; a file here is ./LAB/NODE:PATH


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("cp")(copy)


def _bare(ctx: typer.Context, places: list[str]) -> list[str]:
    """Places without the lab of ``LAB/NODE:PATH``, which is noted."""
    parts = [place.partition(":") for place in places]
    return [
        f"{bare_node(ctx, node)}:{path}" if OF_LAB.match(place) else place
        for place, (node, _, path) in zip(places, parts, strict=True)
    ]


def copy(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC... DST",
            help="NODE:PATH, LAB/NODE:PATH, or a path here; '-' is a stream.",
            autocompletion=complete_places,
            callback=_bare,
        ),
    ],
    sudo: Annotated[bool, typer.Option("--sudo", help="Use the rights of root on Linux nodes.")] = False,
    recursive: Annotated[bool, typer.Option("-r", hidden=True)] = False,  # noqa: ARG001 - fingers know it from scp
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Copy files and folders into nodes, out of them, or between them. After an interruption, run it again: it resumes.

    Examples:
      winlab cp app.exe node-1:C:/k/
      winlab cp 'node-1:C:/winlab/logs/*.log' .
      winlab cp controller-1:/etc/os-release -    # print it
    """
    from winlab import Lab
    from winlab.cli.kinds import access as kinds
    from winlab.errors import UsageError

    *sources, target = places
    if not sources:
        raise UsageError("The target is missing.", cure="Run 'winlab cp SOURCE... TARGET'.")
    own, to_stream = Lab(lab), target == "-"
    current().keep_apart(Path(target) if to_stream else None)
    try:
        with current().shown() as tell:
            done = own.copy(
                sources,
                target,
                root=sudo,
                stdin=streams.given(),
                stdout=streams.writer(sys.stdout.buffer) if to_stream else None,
                listener=tell,
            )
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None
    row = kinds.Transfer(name=target, files=done.files, bytes=done.size, skipped=list(done.skipped))
    if current().answer(kinds.Transfer, [row]):
        return
    for path in done.skipped:
        say(f"Not copied, because it is a link or not a regular file: {path}", error=True)
    say(f"{done.files} file{'' if done.files == 1 else 's'}, {_amount(done.size)}", error=to_stream)


def _amount(size: int) -> str:
    """3072 → ``3.0 KiB``."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
