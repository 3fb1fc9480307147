"""The command ``winlab schema``: the JSON Schemas of results."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from winlab.cli import result
from winlab.cli.app import NoResult
from winlab.cli.common import say


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command(cls=NoResult)(schema)


def _complete(incomplete: str) -> list[str]:
    return [kind for kind in result.kinds() if kind.startswith(incomplete)]


def schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[KIND]",
            help="The kind of result, such as Node; default: list all kinds.",
            autocompletion=_complete,
            show_default=False,
        ),
    ] = "",
) -> None:
    """Print the JSON Schema of what a command prints with '-o json', or list the kinds of results.

    Examples:
      winlab schema
      winlab schema Node > node.schema.json
    """
    say(json.dumps(result.schema(kind), indent=2) if kind else "\n".join(sorted(result.kinds())))
