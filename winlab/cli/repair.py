"""The command that reports what differs from a lab's plan, and repairs it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import settings
from winlab.cli.common import Anyone, print_table, say
from winlab.cli.complete import complete_nodes
from winlab.cli.session import LabName, current
from winlab.cli.words import bare_nodes
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab import Drift


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command()(repair)


def repair(
    node: Annotated[
        str,
        typer.Argument(
            help="Only this node, and what belongs to the whole lab.",
            autocompletion=complete_nodes,
            callback=bare_nodes,
            metavar="[NODE]",
            show_default=False,
        ),
    ] = "",
    lab: LabName = settings.DEFAULT_LAB,
    check: Annotated[bool, typer.Option("--check", help="Only report what differs.")] = False,
    digests: Annotated[
        bool, typer.Option("--digests", help="Also read whole base volumes, and compare their digests. Takes minutes.")
    ] = False,
    anyone: Anyone = False,
) -> None:
    """Compare a lab with its plan, and repair what differs. Exit code 22: something differs and was not repaired.

    Examples:
      winlab repair --check
      winlab repair node-1
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    with current().shown() as tell:
        drifts = Lab(lab, anyone=anyone).repair(node, check=check, digests=digests, listener=tell)
    rows = [kinds.Drift(name=one.node or lab, lab=lab, **dataclasses.asdict(one)) for one in drifts]
    if not current().answer(kinds.Drift, rows):
        _show(lab, drifts, check=check)
    raise typer.Exit(ExitCode.OK if all(one.repaired for one in drifts) else ExitCode.DIFFERS)


def _show(lab: str, drifts: list[Drift], *, check: bool) -> None:
    if not drifts:
        say(f"Nothing differs: the lab '{lab}' is as planned.")
        return
    rows = [
        [one.node or "-", one.what, one.expected, one.actual, "repaired" if one.repaired else "", one.action]
        for one in drifts
    ]
    action = "WHAT REPAIR DOES" if check else "HOW"
    print_table(["NODE", "WHAT", "EXPECTED", "IS", "", action], rows)
    left = sum(not one.repaired for one in drifts)
    if check:
        by_hand = sum(not one.repairable for one in drifts)
        differences = f"{len(drifts)} difference{'s' if len(drifts) > 1 else ''}"
        say(f"{differences}; 'repair' can't fix {by_hand} of them." if by_hand else f"{differences}.")
    else:
        say(f"{len(drifts) - left} repaired" + (f", {left} left." if left else "."))
