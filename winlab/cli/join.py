"""The command ``winlab join``: workers for a cluster made elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli import consent
from winlab.cli.common import (
    BundleFile,
    Changes,
    Format,
    From,
    Iso,
    Lab,
    Mirror,
    Output,
    Own,
    Rehearse,
    System,
    Until,
    UntilWhen,
    make_spec,
    own_programs,
    watched,
)
from winlab.cli.consent import AcceptEula


def join(
    kubeconfig: Annotated[
        Path, typer.Option("--kubeconfig", help="An administrator's, of the cluster.", metavar="FILE")
    ],
    context: Annotated[str, typer.Option("--context", help="Which of its contexts; default: the current one.")] = "",
    server: Annotated[
        str,
        typer.Option(
            "--server",
            help="Where the name leads by which the cluster's nodes know its API server.",
            metavar="ADDRESS:PORT",
        ),
    ] = "",
    lab: Lab = settings.DEFAULT_LAB,
    workers: Annotated[int, typer.Option("--workers", help="How many.", min=0, max=60)] = 1,
    prefix: Annotated[
        str, typer.Option("--prefix", help="What they are called: PREFIX-1, PREFIX-2 ...", metavar="PREFIX")
    ] = "node",
    changes: Changes = None,
    os: System = None,
    iso: Iso = None,
    rehearse: Rehearse = False,
    mirror: Mirror = None,
    source: From = None,
    bundle: BundleFile = None,
    kubelet: Own = None,
    kubeadm: Own = None,
    kube_proxy: Own = None,
    until: UntilWhen = Until.CLUSTER,
    accept_eula: AcceptEula = False,
    output: Format = Output.TABLE,
) -> None:
    """Make a lab of workers that join a cluster made elsewhere by kubeadm."""
    from winlab.cli.progress import clock, shown
    from winlab.design.plan import make
    from winlab.events import Note
    from winlab.host.facts import read_facts
    from winlab.lab_folder import LabState
    from winlab.operations import join as joining
    from winlab.operations import labs
    from winlab.steps.payload import Origin
    from winlab.supply.images import stock

    make.check_prefix(prefix)
    state = LabState(make.check_lab_name(lab))
    joining.check_changes(changes or [])
    spec = make_spec(f"1-{workers}-1", [f"workers.name={prefix}", *(changes or [])], os, iso, rehearse)
    fetch = consent.to_fetch(spec, accept_eula)
    admin = joining.chosen(kubeconfig, context, lab)
    origin = Origin(source.value if source else None, bundle, mirror, own_programs(kubelet, kubeadm, kube_proxy))
    begun = time.monotonic()
    cluster = watched(
        "look at the cluster", lambda voice: joining.look(state, admin, server, spec, origin, voice), output, 10
    )
    at_hand = stock.take(spec)
    made = make.make(spec, lab, read_facts(), at_hand, cluster)
    joining.check(made, cluster, labs.nodes_of(lab))
    with shown(output) as tell:
        for note in joining.notes(made, cluster):
            tell(Note(lab=lab, text=note))
        labs.create(made, at_hand, tell, mirror=mirror, until=until.value, origin=origin, admin=admin, consent=fetch)
    if output is Output.TABLE:
        what = "its nodes have joined and are Ready" if until is Until.CLUSTER else "all nodes answer"
        print(f"The lab '{lab}' is up after {clock(time.monotonic() - begun)}: {what}.")
        if until is Until.CLUSTER:
            from winlab.adapters.kube.kubectl import Kubectl

            print(Kubectl.of(state).run("get", "nodes", "--output=wide"), end="")
