"""Commands for whole labs: create, plan, status, list, destroy."""

from __future__ import annotations

import sys
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
    Spec,
    System,
    Until,
    UntilWhen,
    make_plan,
    make_spec,
    own_programs,
    plan_of,
    print_json,
    print_table,
)
from winlab.cli.consent import AcceptEula
from winlab.errors import ExitCode


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(create)
    app.command()(plan)
    app.command()(status)
    app.command("list")(list_labs)
    app.command()(destroy)


def create(
    spec: Spec = "1-1-1",
    lab: Lab = settings.DEFAULT_LAB,
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
    locked: Annotated[
        bool, typer.Option("--locked", help="Refuse whatever is not as winlab.lock beside the spec says.")
    ] = False,
    until: UntilWhen = Until.CLUSTER,
    accept_eula: AcceptEula = False,
    output: Format = Output.TABLE,
) -> None:
    """Make a lab, or carry on with one that was interrupted."""
    wanted = make_spec(spec, changes, os, iso, rehearse)
    made, at_hand = plan_of(wanted, lab)
    fetch = consent.to_fetch(wanted, accept_eula)
    from winlab.cli.progress import clock, shown
    from winlab.events import Note
    from winlab.operations import labs, lock_file
    from winlab.steps.payload import Origin

    begun = time.monotonic()
    with shown(output) as tell:
        if made.host.accelerator == "tcg":
            tell(Note(lab=lab, text="KVM can't be used on this host: guests are emulated, which is slow."))
        held = lock_file.beside(spec) if locked else None
        own = own_programs(kubelet, kubeadm, kube_proxy)
        origin = Origin(source.value if source else None, bundle, mirror, own)
        labs.create(made, at_hand, tell, mirror=mirror, until=until.value, origin=origin, locked=held, consent=fetch)
    if output is Output.TABLE:
        what = "the cluster is Ready" if until is Until.CLUSTER else "all nodes answer"
        print(f"The lab '{lab}' is up after {clock(time.monotonic() - begun)}: {what}.")
        _show_status(lab)
        if until is Until.CLUSTER:
            from winlab.adapters.kube.kubectl import Kubectl
            from winlab.lab_folder import LabState

            print(Kubectl.of(LabState(lab)).run("get", "nodes", "--output=wide"), end="")


def plan(
    spec: Spec = "1-1-1",
    lab: Lab = settings.DEFAULT_LAB,
    changes: Changes = None,
    os: System = None,
    iso: Iso = None,
    rehearse: Rehearse = False,
    render: Annotated[
        Path | None,
        typer.Option("--render", help="Write every file that guests and libvirt would be given.", metavar="DIR"),
    ] = None,
    output: Format = Output.TABLE,
) -> None:
    """Show everything that would exist, without touching anything."""
    made, _ = make_plan(lab, spec, changes, os, iso, rehearse)
    if (note := consent.assumed(made)) is not None:
        print(note, file=sys.stderr)
    if render is not None:
        from winlab.design.render.folder import write

        for path in write(made, render):
            print(path, file=sys.stderr)
    if output is Output.JSON:
        print_json({**made.without_secrets().model_dump(mode="json"), "digest": made.digest})
        return
    from winlab.cli.plan_view import show

    show(made)


def status(lab: Lab = settings.DEFAULT_LAB, output: Format = Output.TABLE) -> None:
    """Show a lab's nodes. Exit code 0: all answer; 20: some don't; 21: none does."""
    raise typer.Exit(_show_status(lab, output))


def _show_status(lab: str, output: Output = Output.TABLE) -> ExitCode:
    from winlab.operations import labs

    found = labs.status(lab)
    rows = []
    for node in found:
        tag = node.tag
        answers = {True: "yes", False: "no", None: "-"}[node.answers]
        rows.append([tag.node, tag.role, tag.image, node.state, answers, tag.address, tag.floating])
    if output is Output.JSON:
        keys = ("node", "role", "image", "state", "answers", "address", "external")
        nodes = [dict(zip(keys, row, strict=True)) for row in rows]
        for row, node in zip(nodes, found, strict=True):
            row["answers"] = node.answers  # type: ignore[assignment]
            row["problem"] = node.problem
            row["user"] = node.tag.user
        print_json({"lab": lab, "nodes": nodes})
    else:
        hints = [[*row, f"winlab ssh {row[0]}" + _lab_flag(lab)] for row in rows]
        print_table(["NODE", "ROLE", "IMAGE", "STATE", "ANSWERS", "ADDRESS", "FROM OUTSIDE", "REACH IT"], hints)
        for node in found:
            if node.problem:
                print(f"{node.tag.node}: {node.problem}")
    answering = sum(1 for node in found if node.answers)
    if answering == len(found):
        return ExitCode.OK
    return ExitCode.PARTLY if answering else ExitCode.STOPPED


def _lab_flag(lab: str) -> str:
    return "" if lab == settings.DEFAULT_LAB else f" --lab {lab}"


def list_labs(output: Format = Output.TABLE) -> None:
    """Show all labs of this host."""
    from winlab.operations import labs

    found = labs.all_labs()
    if output is Output.JSON:
        print_json(
            [
                {"lab": name, "nodes": [{"node": m.tag.node, "state": m.state} for m in machines]}
                for name, machines in found.items()
            ]
        )
        return
    if not found:
        print("There are no labs.")
        return
    rows = [
        [name, str(len(machines)), str(sum(m.state == "running" for m in machines))] for name, machines in found.items()
    ]
    print_table(["LAB", "NODES", "RUNNING"], rows)


def destroy(lab: Lab = settings.DEFAULT_LAB, output: Format = Output.TABLE) -> None:
    """Remove a lab with all its traces. Images stay, for the next one."""
    from winlab.cli.progress import shown
    from winlab.design.plan.make import check_lab_name
    from winlab.operations import labs

    check_lab_name(lab, own=True)
    with shown(output) as tell:
        removed = labs.destroy(lab, tell)
    if output is Output.TABLE:
        print(f"The lab '{lab}' is gone." if removed else f"There is nothing of a lab '{lab}'.")
