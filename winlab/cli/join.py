"""The command ``winlab join``: workers for an external cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.common import AcceptEula, Anyone, Output, Until, UntilWhen, say
from winlab.cli.flags import ChangeFlags, SourceFlags
from winlab.cli.session import Format, LabName, current
from winlab.design.catalog import distributions

CHANGES, SOURCES = ChangeFlags(), SourceFlags()
HELP = f"""Make a lab of workers that join an external cluster, which {distributions.DEFAULT} made.

Examples:
  winlab join --kubeconfig admin.conf --lab mine
  winlab join --kubeconfig admin.conf --workers 2 --os windows-2022
"""


@dataclass(frozen=True)
class ClusterFlags:
    """The external cluster, and the workers for it."""

    kubeconfig: Annotated[
        Path, typer.Option("--kubeconfig", help="A cluster administrator's kubeconfig.", metavar="FILE")
    ]
    context: Annotated[str, typer.Option("--context", help="The context to use; default: the current one.")] = ""
    server: Annotated[
        str,
        typer.Option(
            "--server",
            help="ADDRESS:PORT that the API server's advertised host name resolves to.",
            metavar="ADDRESS:PORT",
        ),
    ] = ""
    workers: Annotated[int, typer.Option("--workers", help="Number of workers.", min=0, max=60)] = 1
    prefix: Annotated[
        str, typer.Option("--prefix", help="The workers' names: PREFIX-1, PREFIX-2 ...", metavar="PREFIX")
    ] = "node"


def join(
    cluster: ClusterFlags,
    lab: LabName = settings.DEFAULT_LAB,
    changes: ChangeFlags = CHANGES,
    sources: SourceFlags = SOURCES,
    until: UntilWhen = Until.CLUSTER,
    accept_eula: AcceptEula = False,
    anyone: Anyone = False,
    output: Format = Output.TABLE,
) -> None:
    """Make a lab of workers that join an external cluster."""
    from winlab import Lab
    from winlab.cli.progress import clock

    own, origin, begun = Lab(lab, anyone=anyone), sources.origin, time.monotonic()
    spec = own.join_spec(
        cluster.workers,
        changes.changes or (),
        os=changes.os,
        iso=changes.iso,
        rehearse=changes.rehearse,
        allow=changes.allow_path or (),
    )
    with current().shown(output) as tell:
        joining = own.plan_join(
            spec, cluster.kubeconfig, context=cluster.context,
            server=cluster.server, prefix=cluster.prefix, origin=origin, listener=tell,
        )  # fmt: skip
    accepted = consent.accepted(accept_eula, own.terms(joining.planned))
    with current().shown(output) as tell:
        own.join(joining, until=until.value, origin=origin, accept_eula=accepted, listener=tell)
    if output is Output.TABLE:
        what = "its nodes have joined and are Ready" if until is Until.CLUSTER else "all nodes answer"
        say(f"The lab '{lab}' is up after {clock(time.monotonic() - begun)}: {what}.")
        if until is Until.CLUSTER:
            say(own.kubectl("get", "nodes", "--output=wide"), end="")
