"""The commands ``winlab test smoke`` and ``winlab test readiness``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import files, settings
from winlab.cli.app import App
from winlab.cli.common import Output, print_table, say
from winlab.cli.session import Format, LabName, current
from winlab.cli.words import LabWord
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab import Report

app = App(
    help="Check whether a lab's cluster is ready, and whether it works. Exit code 11: something failed.",
    no_args_is_help=True,
)


def _check_folder(junit: Path | None) -> Path | None:
    """Check that the file can be written before minutes are spent on the results.

    :raises UsageError: its folder does not exist, or it is a device, pipe or socket.
    """
    from winlab.errors import UsageError

    if junit is not None:
        files.check_named(junit)
        if not junit.parent.is_dir():
            raise UsageError(f"There is no folder '{junit.parent}' for the file of --junit.", cure="Make it first.")
    return junit


Junit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        help="Also write the results to this file, or '-', as JUnit XML.",
        metavar="FILE",
        dir_okay=False,
        callback=_check_folder,
    ),
]
Only = Annotated[str | None, typer.Option("--only", help="Run only these checks: --only 1,L1,N7.", metavar="ID,ID")]


@app.command()
def smoke(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
    junit: Junit = None,
    only: Only = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the pods in the namespace winlab-smoke for inspection.")
    ] = False,
) -> None:
    """Run pods on the lab's nodes that talk to each other, to services and to the outside.

    Examples:
      winlab test smoke
      winlab test smoke ci --junit smoke.xml
      winlab test smoke --only 1,L1,N7
    """
    from winlab import Lab

    with current().shown(Output.TABLE) as tell:  # on the standard error
        report = Lab(lab).test_smoke(only=only, keep=keep, listener=tell)
    _finish(report, output, junit)


@app.command()
def readiness(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
    junit: Junit = None,
    only: Only = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, help="End after this time, even if the cluster still makes progress.", metavar="SECONDS"
        ),
    ] = None,
) -> None:
    """Wait until every part of the lab's cluster is ready, and report why one is not.

    Examples:
      winlab test readiness
      winlab test readiness ci --timeout 600
    """
    from winlab import Lab

    with current().shown(Output.TABLE) as tell:  # on the standard error
        report = Lab(lab).test_readiness(only=only, timeout=timeout, listener=tell)
    _finish(report, output, junit)


def _finish(report: Report, output: Output, junit: Path | None) -> None:
    if output is Output.JSON:
        current().result = report.document()
    else:
        rows = [[r.id, r.title, r.source, r.target, r.outcome.value, r.detail] for r in report.results]
        print_table(["ID", "CHECK", "FROM", "TO", "OUTCOME", "SEEN"], rows)
        say(report.summary)
    if junit is not None:
        report.write_junit(junit)
    if report.failed:
        raise typer.Exit(ExitCode.CLUSTER)
