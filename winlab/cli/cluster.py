"""Commands for a lab's cluster: kubeconfig, kubectl, push, load, logs, lock."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from winlab import settings
from winlab.cli.common import (
    BundleFile,
    Changes,
    Format,
    From,
    Iso,
    Lab,
    Mirror,
    Node,
    Output,
    Own,
    Rehearse,
    Spec,
    System,
    make_plan,
    own_programs,
    print_json,
    watched,
)
from winlab.cli.join import join

ANY_WORDS = {"allow_extra_args": True, "ignore_unknown_options": True}


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(kubeconfig)
    app.command(context_settings=ANY_WORDS)(kubectl)
    app.command()(push)
    app.command()(load)
    app.command()(logs)
    app.command()(lock)
    app.command()(join)


def kubeconfig(
    lab: Lab = settings.DEFAULT_LAB,
    merge: Annotated[bool, typer.Option("--merge", help="Put it into your own kubeconfig.")] = False,
    use: Annotated[bool, typer.Option("--use", help="With --merge: make the lab's context the current one.")] = False,
) -> None:
    """Print a lab's kubeconfig; or merge it into your own, as the context winlab-NAME."""
    from winlab.adapters.kube import kubeconfig as files
    from winlab.errors import UsageError
    from winlab.lab_folder import LabState

    if use and not merge:
        raise UsageError("--use goes with --merge.", cure="Run 'winlab kubeconfig --merge --use'.")
    if not merge:
        print(files.read(LabState(lab)), end="")
        return
    path = files.publish(lab, use=use)
    how = "kubectl" if use else f"kubectl --context {files.name(lab)}"
    print(f"'{path}' has the context '{files.name(lab)}' now: {how} get nodes")


def kubectl(ctx: typer.Context, lab: Lab = settings.DEFAULT_LAB) -> None:
    """Run the lab's own kubectl: winlab kubectl -- get nodes."""
    import os

    from winlab import run
    from winlab.adapters.kube.kubectl import Kubectl
    from winlab.lab_folder import LabState

    own = Kubectl.of(LabState(lab))
    os.environ["KUBECONFIG"] = str(own.kubeconfig)  # a flag would not reach kubectl's plug-ins
    run.replace([own.program, *ctx.args])


def push(
    binary: Annotated[
        str, typer.Argument(help="The file; its name says what it replaces: kubelet.exe. With --restore the name.")
    ],
    node: Node,
    restore: Annotated[bool, typer.Option("--restore", help="Bring the original back.")] = False,
    lab: Lab = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
) -> None:
    """Swap a program on a running node with your own build, or back."""
    from winlab.operations import push as operation
    from winlab.site import Site

    done = watched(
        f"push {node}", lambda voice: operation.to_node(lab, Site(), node, binary, voice, restore=restore), output, 60
    )
    if output is Output.JSON:
        print_json({"node": node, **dataclasses.asdict(done)})
        return
    was = "" if done.changed else " already"
    print(f"'{node}' has {'its original' if restore else 'your'} {done.program}{was}: SHA-256 {done.sha256}.")
    if done.kubelet:
        print(f"It is Ready, with the kubelet {done.kubelet}.")


def load(
    image: Annotated[
        str, typer.Argument(help="An OCI archive, what 'docker save' wrote, or a name in Docker or Podman.")
    ],
    name: Annotated[str, typer.Option("--name", help="The name that it gets in the lab.", metavar="REFERENCE")] = "",
    lab: Lab = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
) -> None:
    """Bring a container image to every node of its system."""
    from winlab.cli.progress import shown
    from winlab.operations import load as operation
    from winlab.site import Site

    with shown(output) as tell:
        found = operation.to_lab(lab, Site(), image, tell, name=name)
    if output is Output.JSON:
        print_json([{"image": reference, "nodes": nodes} for reference, nodes in found.items()])
        return
    for reference, nodes in found.items():
        print(f"{reference} is on {', '.join(nodes)}.")
    print("Pods find it with imagePullPolicy IfNotPresent or Never.")


def logs(
    node: Node = "",
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of each log.")] = 60,
    lab: Lab = settings.DEFAULT_LAB,
    output: Format = Output.TABLE,
) -> None:
    """Show a node's conditions and events, and the last lines of its logs; without a name, all nodes'."""
    from winlab.operations.logs import reports, text
    from winlab.site import Site

    found = reports(lab, Site(), node, lines)
    if output is Output.JSON:
        print_json([dataclasses.asdict(report) for report in found])
    else:
        print("\n\n".join(text(report) for report in found))


def lock(
    spec: Spec = "1-1-1",
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
    file: Annotated[
        Path | None, typer.Option("--file", help="Default: winlab.lock beside the spec's file.", metavar="FILE")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 6 if something differs.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """Write or renew winlab.lock: every input of a lab by its hash, for 'create --locked'."""
    from winlab.cli.progress import shown
    from winlab.operations import lock as operation
    from winlab.steps.payload import Origin

    made, at_hand = make_plan(settings.DEFAULT_LAB, spec, changes, os, iso, rehearse)
    origin = Origin(source.value if source else None, bundle, mirror, own_programs(kubelet, kubeadm, kube_proxy))
    with shown(output) as tell:
        done = operation.renew(made, at_hand, tell, spec=spec, origin=origin, path=file, check=check)
    if output is Output.JSON:
        print_json({"file": str(done.path), "written": done.written, "changes": done.changes})
        return
    for change in done.changes:
        print(change)
    print(f"'{done.path}' {'is written' if done.written else 'is as it was'}: {done.inputs} inputs.")
