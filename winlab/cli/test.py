"""The commands ``winlab test smoke``, ``winlab test readiness`` and ``winlab test list``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import files, settings
from winlab.cli import table
from winlab.cli.app import App
from winlab.cli.common import print_table, say
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab import Report

app = App(
    help="Check whether a lab's cluster is ready, and whether it works. Exit code 11: something failed.",
    no_args_is_help=True,
)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="test")


def _check_folder(junit: Path | None) -> Path | None:
    """Check that the file can be written before minutes are spent on the results.

    :raises UsageError: its folder does not exist, or it is a device, pipe or socket.
    """
    from winlab.errors import UsageError

    if junit is not None:
        files.check_named(junit)
        current().keep_apart(junit)
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
Only = Annotated[
    str | None,
    typer.Option("--only", help="Run only these checks of 'winlab test list': --only 1,L1,N7.", metavar="ID,ID"),
]


@app.command()
def smoke(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
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

    with current().shown() as tell:
        report = Lab(lab).test_smoke(only=only, keep=keep, listener=tell)
    _finish(report, junit)


@app.command()
def readiness(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
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

    with current().shown() as tell:
        report = Lab(lab).test_readiness(only=only, timeout=timeout, listener=tell)
    _finish(report, junit)


@app.command("list")
def list_checks() -> None:
    """List what the tests check, with the identifiers for --only.

    Examples:
      winlab test list
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    made = Lab.checks()
    if not current().answer(kinds.Test, [kinds.Test.made_of(one, "id") for one in made]):
        print_table(
            ["ID", "TEST", "CHECK", "FROM", "TO"],
            [[one.id, one.suite, one.title, one.source, one.target] for one in made],
        )


def _show(report: Report) -> None:
    """Print the results: what failed first, what passed next; what was not tested is one line, unless all is wanted."""
    shown = [one for one in report.ordered if table.wide.get() or not one.outcome.untested]
    rows = [[one.id, one.title, one.source, one.target, one.outcome.value, one.detail] for one in shown]
    print_table(["ID", "CHECK", "FROM", "TO", "OUTCOME", "SEEN"], rows)
    for outcome, count in report.counts.items():
        if outcome.untested and not table.wide.get():
            say(f"{outcome.untested}: {count} (-o wide shows them).")
    say(report.summary)


def _finish(report: Report, junit: Path | None) -> None:
    from winlab.cli.kinds import labs as kinds

    results = [
        kinds.TestResult(
            name=one.id,
            suite=report.suite,
            lab=report.lab,
            title=one.title,
            source=one.source,
            target=one.target,
            outcome=one.outcome.value,
            detail=one.detail,
            seconds=round(one.seconds, 1),
        )
        for one in report.results
    ]
    if not current().answer(kinds.TestResult, results):
        _show(report)
    if junit is not None:
        report.write_junit(junit)
    if report.failed:
        raise typer.Exit(ExitCode.CLUSTER)
