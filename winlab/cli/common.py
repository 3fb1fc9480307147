"""What all commands share: single options and tables. Groups of flags are in :mod:`winlab.cli.flags`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, BinaryIO, TextIO

import typer

from winlab.cli.complete import complete_images, complete_nodes
from winlab.cli.glyphs import fit
from winlab.cli.table import print_table as print_table
from winlab.cli.tree import SUPPLIES
from winlab.cli.words import bare_nodes
from winlab.printable import printable

if TYPE_CHECKING:
    from winlab import Site


class SourceKind(StrEnum):
    """Where artifacts come from."""

    UPSTREAM = "upstream"
    MIRROR = "mirror"
    BUNDLE = "bundle"
    BUILD = "build"


class Until(StrEnum):
    """How far to create a lab."""

    GUESTS = "guests"
    CLUSTER = "cluster"


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    WIDE = "wide"  # a table with every column; commands see TABLE (winlab.cli.session)
    JSON = "json"
    YAML = "yaml"
    NAME = "name"  # the name of each item on a line


NodeName = Annotated[
    str,
    typer.Argument(
        help="The node: NODE, or LAB/NODE.", autocompletion=complete_nodes, callback=bare_nodes, metavar="NODE"
    ),
]
ImageName = Annotated[str, typer.Argument(help="The image's name.", autocompletion=complete_images)]


Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        envvar="WINLAB_MIRROR",
        help="A URL prefix or folder to take images and Kubernetes from, instead of their own sites.",
        metavar="URL|DIR",
        rich_help_panel=SUPPLIES,
    ),
]
UntilWhen = Annotated[
    Until,
    typer.Option(
        "--until",
        envvar="WINLAB_UNTIL",
        help="How far to go: guests (nodes answer) or cluster (Kubernetes is Ready).",
        metavar="|".join(Until),
    ),
]
AcceptEula = Annotated[
    bool,
    typer.Option(
        "--accept-eula", envvar="WINLAB_ACCEPT_EULA", help="You have read and accept Microsoft's evaluation terms."
    ),
]
Anyone = Annotated[
    bool, typer.Option("--anyone", envvar="WINLAB_ANYONE", help="Allow it even if another user made the lab.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", envvar="WINLAB_YES", help="Do not ask for confirmation.")]


def say(text: object, *, end: str = "\n", error: bool = False) -> None:
    """Print a text, made printable: parts of it may come from a guest, a cluster or a file.

    :param error: print it on the standard error.
    """
    stream = sys.stderr if error else sys.stdout
    print(fit(printable(str(text)), stream), end=end, file=stream, flush=error)


def report_silent(site: Site) -> None:
    """Report the hypervisors that did not answer, on the standard error: what was shown is not all there is."""
    for one in site.silent:
        say(one, error=True)


def drop_output(stream: BinaryIO | TextIO | None = None) -> None:
    """Discard all further output of a stream, by default the standard output: its reader has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())
