"""What all commands share: single options, tables and JSON. Groups of flags are in :mod:`winlab.cli.flags`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from winlab.cli.complete import complete_images, complete_labs, complete_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab.design.plan.model import Plan
    from winlab.design.spec.model import Spec
    from winlab.events import Progress
    from winlab.lab import Lab


T = TypeVar("T")


class Source(StrEnum):
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


LabName = Annotated[
    str,
    typer.Option("--lab", envvar="WINLAB_LAB", help="The lab's name.", autocompletion=complete_labs, metavar="NAME"),
]
NodeName = Annotated[str, typer.Argument(help="The node's name, such as node-1.", autocompletion=complete_nodes)]
ImageName = Annotated[str, typer.Argument(help="The image's name.", autocompletion=complete_images)]
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.")]
Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        envvar="WINLAB_MIRROR",
        help="URL prefix or folder to take images and Kubernetes from, instead of their own sites.",
    ),
]
UntilWhen = Annotated[Until, typer.Option("--until", help="Stop earlier: when the guests answer.")]
AcceptEula = Annotated[
    bool, typer.Option("--accept-eula", help="You have read Microsoft's terms for evaluations, and accept them.")
]


def print_json(value: Any) -> None:
    """Print a value as JSON on the standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table on the standard output; nothing is cut off when that is a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, show_header=any(columns), box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def plan_of(lab: Lab, spec: Spec) -> Plan:
    """The lab's plan. Reading large files for it is shown on the standard error, however results are printed.

    :raises UsageError: the spec can't be had on this host.
    """
    from winlab.cli.progress import shown

    with shown(Output.TABLE) as tell:
        return lab.plan(spec, listener=tell)


def watched(name: str, work: Callable[[Progress], T], output: Output, usual: float) -> T:
    """Do the work as a step, so that it is shown as all steps are; its result."""
    from winlab.cli.progress import shown
    from winlab.operations import one_step

    with shown(output) as tell:
        return one_step.perform(name, work, tell, usual)
