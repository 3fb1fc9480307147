"""What all commands share: single options, tables and JSON. Groups of flags are in :mod:`winlab.cli.flags`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from winlab.cli.complete import complete_images, complete_labs, complete_nodes
from winlab.printable import printable, within


class SourceKind(StrEnum):
    """Where artifacts come from."""

    UPSTREAM = "upstream"
    MIRROR = "mirror"
    BUNDLE = "bundle"
    BUILD = "build"


class Until(StrEnum):
    """How far a lab is made."""

    GUESTS = "guests"
    CLUSTER = "cluster"


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def _choose_lab(value: str) -> str:
    """Remember the lab, for the archive that is made if the command fails."""
    global chosen_lab
    chosen_lab = value
    return value


chosen_lab = ""
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
NodeName = Annotated[str, typer.Argument(help="The node's name, such as node-1.", autocompletion=complete_nodes)]
ImageName = Annotated[str, typer.Argument(help="The image's name.", autocompletion=complete_images)]


def _choose_output(value: Output) -> Output:
    """Remember the output format, for the message that is printed if the command fails."""
    global chosen_output
    chosen_output = value
    return value


chosen_output = Output.TABLE
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.", callback=_choose_output)]
Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        envvar="WINLAB_MIRROR",
        help="URL prefix or folder to take images and Kubernetes from, instead of their own sites.",
    ),
]
UntilWhen = Annotated[Until, typer.Option("--until", help="How far to go; 'guests' stops when the guests answer.")]
AcceptEula = Annotated[
    bool, typer.Option("--accept-eula", help="Confirm that you have read and accept Microsoft's evaluation terms.")
]


def say(text: object, *, end: str = "\n", error: bool = False) -> None:
    """Print a text, made printable: a guest, a cluster or a file may have written parts of it.

    :param error: print it on the standard error.
    """
    print(printable(str(text)), end=end, file=sys.stderr if error else sys.stdout, flush=error)


def print_json(value: Any) -> None:
    """Print a value as JSON on the standard output, its texts made printable."""
    say(json.dumps(within(value), indent=2, default=str))


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table on the standard output; nothing is cut off when that is a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, show_header=any(columns), box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)
