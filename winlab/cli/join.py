"""The command ``winlab join``: workers for an external cluster."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.common import Until, print_table, say
from winlab.cli.flags import ChangeFlags, MakingFlags
from winlab.cli.nodes import answer_nodes
from winlab.cli.session import LabName, current
from winlab.design.catalog import distributions
from winlab.errors import ExitCode

if TYPE_CHECKING:
    from winlab import ClusterVerdict, Nearby

MARKS = {"ok": "✓", "warning": "!", "change": "→", "refused": "✗"}
Check = Annotated[
    bool,
    typer.Option("--check", help="Only show what the cluster needs; 2: no worker can join."),
]
CHANGES, MAKING = ChangeFlags(), MakingFlags()
HELP = f"""Make a lab of workers that join an external cluster, such as one of {" or ".join(distributions.NAMES)}.

Without --kubeconfig, list the clusters that this host shows.

Examples:
  winlab join --check --kubeconfig admin.conf
  winlab join --kubeconfig admin.conf --lab mine
  winlab join --kubeconfig admin.conf --workers 2 --os windows-2022
"""


class Attachment(StrEnum):
    """As the spec's ``network.attachment``."""

    NAT = "nat"
    ROUTED = "routed"
    ATTACHED = "attached"


@dataclass(frozen=True)
class ClusterFlags:
    """The external cluster, and the workers for it."""

    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            "--kubeconfig",
            help="A cluster administrator's kubeconfig.",
            metavar="FILE",
        ),
    ] = None
    context: Annotated[str, typer.Option("--context", help="The context to use; default: the current one.")] = ""
    server: Annotated[
        str,
        typer.Option(
            "--server",
            help="Where nodes reach the API server; default: what the cluster says.",
            metavar="ADDRESS:PORT",
        ),
    ] = ""
    attachment: Annotated[
        Attachment | None,
        typer.Option(
            "--attachment",
            help="nat, routed or attached (docs/attachment.md).",
            metavar="MODE",
        ),
    ] = None
    workers: Annotated[int, typer.Option("--workers", help="Number of workers.", min=0, max=60)] = 1
    prefix: Annotated[str, typer.Option("--prefix", help="What the workers' names begin with.", metavar="PREFIX")] = (
        "node"
    )


def join(
    cluster: ClusterFlags,
    lab: LabName = settings.DEFAULT_LAB,
    changes: ChangeFlags = CHANGES,
    making: MakingFlags = MAKING,
    check: Check = False,
) -> None:
    """Make a lab of workers that join an external cluster."""
    from winlab import Lab
    from winlab.cli.progress import clock

    if cluster.kubeconfig is None:
        _show_nearby(Lab.nearby_clusters())
        return
    own, origin, begun = Lab(lab, anyone=making.anyone), making.origin, time.monotonic()
    spec = own.join_spec(
        cluster.workers,
        [*(changes.changes or ()), *(f"network.attachment={one.value}" for one in [cluster.attachment] if one)],
        os=changes.os,
        iso=changes.iso,
        rehearse=changes.rehearse,
        allow=changes.allow_path or (),
    )
    if check:
        with current().shown() as tell:  # on the standard error
            verdict = own.check_join(
                spec, cluster.kubeconfig, context=cluster.context, server=cluster.server, origin=origin, listener=tell
            )
        _show(verdict)
        raise typer.Exit(ExitCode.USAGE if verdict.refused else ExitCode.OK)
    with current().shown() as tell:
        joining = own.plan_join(
            spec, cluster.kubeconfig, context=cluster.context,
            server=cluster.server, prefix=cluster.prefix, origin=origin, listener=tell,
        )  # fmt: skip
    accepted = consent.accepted(making.accept_eula, own.terms(joining.planned))
    with current().shown() as tell:
        own.join(joining, until=making.until.value, origin=origin, accept_eula=accepted, listener=tell)
    if answer_nodes(own):
        return
    what = "its nodes have joined and are Ready" if making.until is Until.CLUSTER else "all nodes answer"
    say(f"The lab '{lab}' is up after {clock(time.monotonic() - begun)}: {what}.")
    if making.until is Until.CLUSTER:
        say(own.kubectl("get", "nodes"), end="")


def _show(verdict: ClusterVerdict) -> None:
    from winlab.cli.kinds import clusters as kinds

    findings = [kinds.Finding(row.about, row.level, row.says, row.cure) for row in verdict.rows]
    row = kinds.JoinCheck(name=verdict.kind, version=verdict.version, refused=verdict.refused, findings=findings)
    if current().answer(kinds.JoinCheck, [row]):
        return
    rows = [[MARKS[row.level], row.about, row.says, row.cure] for row in verdict.rows]
    print_table(["", "ABOUT", "STATE", "WHAT YOU DO"], rows)
    if verdict.refused:
        say("Workers can't join this cluster as it is: see the rows with ✗.")
    else:
        say("Workers can join this cluster. Rows with → name what does not work before you change your cluster.")


def _show_nearby(found: list[Nearby]) -> None:
    from winlab.cli.kinds import clusters as kinds

    if current().answer(kinds.Cluster, map(asdict, found)):
        return
    if not found:
        say("This host shows no cluster: give a kubeconfig with --kubeconfig.")
        return
    rows = [[one.name, one.distribution or "?", one.where, one.use, one.note] for one in found]
    print_table(["CLUSTER", "DISTRIBUTION", "WHERE", "HOW TO USE IT", "NOTE"], rows)
    for kind, needs in sorted({one.distribution: one.needs for one in found if one.needs}.items()):
        say(f"{kind} needs: {needs}.")
    say("Check one with: winlab join --check --kubeconfig FILE [--context NAME]")
