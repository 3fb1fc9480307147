"""Commands for a lab's cluster: kubeconfig, kubectl, push, load, logs, lock."""

from __future__ import annotations

import codecs
import dataclasses
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from winlab import settings
from winlab.cli import streams
from winlab.cli.common import Anyone, NodeName, report_silent, say
from winlab.cli.complete import complete_nodes
from winlab.cli.flags import SourceFlags, SpecFlags, spread
from winlab.cli.join import HELP, join
from winlab.cli.session import LabName, current
from winlab.cli.verbatim import Verbatim
from winlab.cli.words import LabWord, bare_nodes
from winlab.cli.work import plan_of
from winlab.errors import ExitCode, UsageError
from winlab.printable import printable

if TYPE_CHECKING:
    from winlab import Lab

ONE_LOG = "Run 'winlab logs node-1 kubelet -f', for example."
ANY_WORDS = {"allow_extra_args": True, "ignore_unknown_options": True}
SPEC, SOURCES = SpecFlags(), SourceFlags()


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command()(kubeconfig)
    app.command(cls=_Kubectl, context_settings=ANY_WORDS)(kubectl)
    app.command()(push)
    app.command()(load)
    app.command()(logs)
    app.command()(spread(lock))
    app.command(help=HELP)(spread(join))


class _Kubectl(Verbatim):
    """A command all of whose words are kubectl's."""

    own = 0


def kubeconfig(
    _word: LabWord = None,
    lab: LabName = settings.DEFAULT_LAB,
    merge: Annotated[bool, typer.Option("--merge", help="Merge it into your own kubeconfig.")] = False,
    use: Annotated[bool, typer.Option("--use", help="With --merge: make the lab's context the current one.")] = False,
) -> None:
    """Print a lab's kubeconfig, or merge it into your own as the context winlab-NAME.

    Examples:
      winlab kubeconfig > lab.kubeconfig
      winlab kubeconfig ci --merge --use
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    own = Lab(lab)
    if use and not merge:
        raise UsageError("--use needs --merge.", cure="Run 'winlab kubeconfig --merge --use'.")
    if not merge:
        text = own.kubeconfig()
        if not current().answer(kinds.Kubeconfig, [kinds.Kubeconfig(name=own.context, lab=lab, kubeconfig=text)]):
            say(text, end="")
        return
    path = own.merge_kubeconfig(use=use)
    if current().answer(kinds.Kubeconfig, [kinds.Kubeconfig(name=own.context, lab=lab, file=str(path))]):
        return
    how = "kubectl" if use else f"kubectl --context {own.context}"
    say(f"'{path}' has the context '{own.context}' now: {how} get nodes")


def kubectl(ctx: typer.Context, lab: LabName = settings.DEFAULT_LAB) -> None:
    """Run the lab's own kubectl. Everything after its first word is for kubectl.

    Examples:
      winlab kubectl get nodes -o wide
      winlab kubectl --lab ci apply -f pod.yaml
    """
    from winlab import Lab

    Lab(lab).become_kubectl(ctx.args)


def push(
    binary: Annotated[
        str,
        typer.Argument(help="The file; its name decides what it replaces: kubelet.exe. With --restore, only a name."),
    ],
    node: NodeName,
    restore: Annotated[bool, typer.Option("--restore", help="Restore the original.")] = False,
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Replace a program on a running node with your own build, or restore the original.

    Examples:
      winlab push out/kubelet.exe node-1
      winlab push kubelet.exe node-1 --restore
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    with current().shown() as tell:
        done = Lab(lab, anyone=anyone).push(node, binary, restore=restore, listener=tell)
    if current().answer(kinds.Push, [kinds.Push(name=node, lab=lab, **dataclasses.asdict(done))]):
        return
    was = "" if done.changed else " already"
    say(f"'{node}' has {'its original' if restore else 'your'} {done.program}{was}: SHA-256 {done.sha256}.")
    if done.kubelet:
        say(f"It is Ready, with the kubelet {done.kubelet}.")


def load(
    image: Annotated[
        str, typer.Argument(help="An OCI archive, a file from 'docker save', or a name in Docker or Podman.")
    ],
    name: Annotated[str, typer.Option("--name", help="The image's name in the lab.", metavar="REFERENCE")] = "",
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Load a container image into every node with a matching operating system.

    Examples:
      winlab load app.tar
      winlab load localhost/app:dev --name app:dev
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    with current().shown() as tell:
        loaded = Lab(lab, anyone=anyone).load(image, name=name, listener=tell)
    rows = [kinds.ContainerImage(name=reference, lab=lab, nodes=nodes) for reference, nodes in loaded.items()]
    if current().answer(kinds.ContainerImage, rows):
        return
    for reference, nodes in loaded.items():
        say(f"{reference} is on {', '.join(nodes)}.")
    say("Pods find it with imagePullPolicy IfNotPresent or Never.")


def logs(
    node: Annotated[
        str,
        typer.Argument(
            help="The node: NODE, or LAB/NODE; default: all.",
            autocompletion=complete_nodes,
            callback=bare_nodes,
            metavar="[NODE]",
            show_default=False,
        ),
    ] = "",
    unit: Annotated[
        str,
        typer.Argument(
            help="One log: kubelet, containerd, another unit of systemd; on Windows also a file.",
            metavar="[UNIT]",
            show_default=False,
        ),
    ] = "",
    lines: Annotated[int, typer.Option("--lines", "--tail", "-n", help="How many lines of each log.")] = 60,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep printing one log until Ctrl-C.")] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="One log's lines of the last 30s, 10m, 2h; on Linux.")
    ] = "",
    lab: LabName = settings.DEFAULT_LAB,
) -> None:
    """Show the conditions, events and last log lines of a node, or of all nodes; or one log of a node.

    Examples:
      winlab logs
      winlab logs node-1 kubelet -f
      winlab logs controller-1 kubelet --since 10m
    """
    from winlab import Lab
    from winlab.cli.kinds import labs as kinds

    own = Lab(lab)
    if unit or follow or since:
        if not node or not current().for_people:
            raise UsageError("--follow and --since are for one log of one node, as text.", cure=ONE_LOG)
        _one_log(own, node, unit or "kubelet", lines, since, follow=follow)
        return
    reports = own.logs(node, lines)
    report_silent(own.site)
    rows = [kinds.Log.made_of(report, "node", lab=lab) for report in reports]
    if not current().answer(kinds.Log, rows):
        say("\n\n".join(str(report) for report in reports))


def _one_log(lab: Lab, node: str, unit: str, lines: int, since: str, *, follow: bool) -> None:
    out = streams.writer(sys.stdout.buffer)
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    current().left_running = "Nothing: only the log was shown."

    def show(chunk: bytes) -> None:
        # a node wrote it: it may not send the terminal what the terminal obeys
        out(printable(decoder.decode(chunk)).encode())

    try:
        lab.node(node).log(unit, show, lines=lines, since=since, follow=follow)
    except BrokenPipeError:
        raise typer.Exit(ExitCode.CLOSED) from None


def lock(
    wanted: SpecFlags = SPEC,
    sources: SourceFlags = SOURCES,
    file: Annotated[
        Path | None, typer.Option("--file", help="Default: winlab.lock beside the spec's file.", metavar="FILE")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit code 6 if something differs.")] = False,
) -> None:
    """Write winlab.lock: every input of a lab by its hash, for 'create --locked'.

    Examples:
      winlab lock lab.yaml
      winlab lock lab.yaml --check
    """
    from winlab import Lab
    from winlab.cli.kinds import supplies as kinds

    own = Lab()
    made = plan_of(own, wanted.load(), machines=False)
    with current().shown() as tell:
        done = own.lock(made, spec=wanted.spec, origin=sources.origin, file=file, check=check, listener=tell)
    row = kinds.Lock(name=str(done.path), written=done.written, changes=done.changes, inputs=done.inputs)
    if current().answer(kinds.Lock, [row]):
        return
    for change in done.changes:
        say(change)
    say(f"'{done.path}' {'is written' if done.written else 'is as it was'}: {done.inputs} inputs.")
