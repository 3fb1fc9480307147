"""The commands ``winlab test smoke`` and ``winlab test readiness``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import settings
from winlab.cli.common import Format, LabName, Output, print_json, print_table
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab.checks.model import Report

app = typer.Typer(
    help="Check whether a lab's cluster is ready, and whether it works. Exit code 11: something failed.",
    no_args_is_help=True,
)

Junit = Annotated[
    Path | None,
    typer.Option("--junit", help="Also write the results to this file as JUnit XML.", metavar="FILE", dir_okay=False),
]
Only = Annotated[str | None, typer.Option("--only", help="Run only these checks: --only 1,L1,N7.", metavar="ID,ID")]


@app.command()
def smoke(
    lab: LabName = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
    junit: Junit = None,
    only: Only = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the pods in the namespace winlab-smoke for inspection.")
    ] = False,
) -> None:
    """Run pods on the lab's nodes and have them talk: to each other, to services, to the outside."""
    _check_folder(junit)
    from winlab.checks import access, smoke
    from winlab.checks.model import choose
    from winlab.checks.rows import ROWS
    from winlab.cli.progress import shown
    from winlab.site import Site

    choose([row.id for row in ROWS], only)
    tags, reach = access.of(lab, Site())
    with shown(Output.TABLE) as tell:  # on the standard error
        report = smoke.run(lab, tags, reach, tell, only=only, keep=keep)
    _finish(report, output, junit)


@app.command()
def readiness(
    lab: LabName = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
    junit: Junit = None,
    only: Only = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, help="Wait this long for each check, instead of its own limit.", metavar="SECONDS"
        ),
    ] = None,
) -> None:
    """Wait until every part of the lab's cluster is ready, and say why one is not."""
    _check_folder(junit)
    from winlab.checks import access, readiness
    from winlab.cli.progress import shown
    from winlab.site import Site

    readiness.chosen_gates(only)
    tags, reach = access.of(lab, Site())
    with shown(Output.TABLE) as tell:  # on the standard error
        report = readiness.run(lab, tags, reach, tell, only=only, timeout=timeout)
    _finish(report, output, junit)


def _check_folder(junit: Path | None) -> None:
    """Check that the file's folder exists before minutes are spent on the results.

    :raises UsageError: its folder does not exist.
    """
    from winlab.errors import UsageError

    if junit is not None and not junit.parent.is_dir():
        raise UsageError(f"There is no folder '{junit.parent}' for the file of --junit.", cure="Make it first.")


def _finish(report: Report, output: Output, junit: Path | None) -> None:
    from winlab.checks import report as reports
    from winlab.errors import UsageError

    if output is Output.JSON:
        print_json(reports.document(report))
    else:
        print_table(reports.COLUMNS, reports.rows(report))
        print(reports.summary(report))
    if junit is not None:
        try:
            junit.write_bytes(reports.junit(report))
        except OSError as error:
            raise UsageError(f"The results can't be written to '{junit}'.", why=str(error)) from error
    if report.failed:
        raise typer.Exit(ExitCode.CLUSTER)
