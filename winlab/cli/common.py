"""What all commands share: options, completion, tables and JSON."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from winlab import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab.design.plan.facts import HostFacts
    from winlab.design.plan.model import Plan
    from winlab.design.plan.stock import Stock
    from winlab.design.spec.model import Spec as SpecModel
    from winlab.events import Progress


T = TypeVar("T")


class Source(StrEnum):
    """Where artifacts come from."""

    UPSTREAM = "upstream"
    MIRROR = "mirror"
    BUNDLE = "bundle"
    BUILD = "build"


class Until(StrEnum):
    """How far a lab is made."""

    GUESTS = "guests"
    CLUSTER = "cluster"


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


def _complete_labs() -> list[str]:
    from winlab import lab_folder
    from winlab.errors import WinlabError
    from winlab.operations import labs as lab

    try:
        return sorted({*lab.all_labs(), *lab_folder.labs()})
    except WinlabError:
        return lab_folder.labs()


def _complete_specs(incomplete: str) -> list[str]:
    from pathlib import Path

    from winlab.design import spec

    files = [str(path) for path in Path().glob(f"{incomplete}*.yaml")]
    return [name for name in [*spec.names(), *files] if name.startswith(incomplete)]


def _complete_nodes(ctx: typer.Context) -> list[str]:
    from winlab.errors import WinlabError
    from winlab.operations import labs as lab

    try:
        return list(lab.nodes_of(ctx.params.get("lab") or settings.DEFAULT_LAB))
    except WinlabError:
        return []


def _complete_images() -> list[str]:
    from winlab.design.catalog import recipes

    return list(recipes.names())


def _complete_systems() -> list[str]:
    from winlab.design.catalog import recipes

    return recipes.systems()


Lab = Annotated[
    str,
    typer.Option("--lab", envvar="WINLAB_LAB", help="The lab's name.", autocompletion=_complete_labs, metavar="NAME"),
]
Node = Annotated[str, typer.Argument(help="The node's name, such as node-1.", autocompletion=_complete_nodes)]


def _choose_output(value: Output) -> Output:
    """Remember how a command prints, for what is told when it fails."""
    global chosen_output
    chosen_output = value
    return value


chosen_output = Output.TABLE
Format = Annotated[Output, typer.Option("--output", "-o", help="How to print the result.", callback=_choose_output)]
Spec = Annotated[
    str,
    typer.Option(
        "--spec",
        "-s",
        envvar="WINLAB_SPEC",
        help="controllers-workers-hypervisors, a name in specs/, or a YAML file.",
        autocompletion=_complete_specs,
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Change a field of the spec: --set workers.cpus=4. Can be repeated.", metavar="PATH=VALUE"
    ),
]
System = Annotated[
    str | None,
    typer.Option("--os", help="The workers' system: an image from images/.", autocompletion=_complete_systems),
]
Iso = Annotated[str | None, typer.Option("--iso", help="A Windows Server ISO of your own; it stays as it is.")]
Rehearse = Annotated[
    bool,
    typer.Option("--rehearse", help="Take stand-in Windows media, made here: all of winlab but Windows itself."),
]
Mirror = Annotated[
    str | None,
    typer.Option(
        "--mirror",
        envvar="WINLAB_MIRROR",
        help="URL prefix or folder to take images and Kubernetes from, instead of their own sites.",
    ),
]
From = Annotated[
    Source | None,
    typer.Option("--source", help="Where Kubernetes comes from; default: what is at hand, which is said."),
]
BundleFile = Annotated[
    Path | None,
    typer.Option("--bundle", help="Take everything from this bundle, and nothing from the internet.", metavar="FILE"),
]
Own = Annotated[
    list[Path] | None,
    typer.Option(
        help="A program of your own in place of the source's; the file tells which system it is for. Can be repeated.",
        metavar="PATH",
    ),
]
UntilWhen = Annotated[Until, typer.Option("--until", help="Stop earlier: when the guests answer.")]
IMAGE_NAME = typer.Argument(help="The image's name.", autocompletion=_complete_images)


def print_json(value: Any) -> None:
    """Print a value as JSON on the standard output."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def print_table(columns: list[str], rows: list[list[str]]) -> None:
    """Print a table on the standard output; nothing is cut off when that is a pipe."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, show_header=any(columns), box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=200)
    console.print(table)


def make_plan(
    lab: str,
    spec: str,
    changes: list[str] | None,
    system: str | None,
    iso: str | None,
    rehearse: bool,
    facts: HostFacts | None = None,
) -> tuple[Plan, Stock]:
    """The plan that the flags of create and plan mean, for the recorded host, or one with other *facts*.

    :raises UsageError: they contradict each other, or the spec is not valid.
    """
    return plan_of(make_spec(spec, changes, system, iso, rehearse), lab, facts)


def plan_of(spec: SpecModel, lab: str, facts: HostFacts | None = None) -> tuple[Plan, Stock]:
    """The plan of a spec for the recorded host, or one with other *facts*; and what was at hand for it.

    :raises UsageError: the spec can't be had on this host.
    """
    from winlab.design.plan import make
    from winlab.host.facts import read_facts
    from winlab.supply.images import stock

    at_hand = stock.take(spec)
    return make.make(spec, lab, facts or read_facts(), at_hand), at_hand


def make_spec(spec: str, changes: list[str] | None, system: str | None, iso: str | None, rehearse: bool) -> SpecModel:
    """The spec that the flags mean.

    :raises UsageError: they contradict each other, or the spec is not valid.
    """
    from winlab.design.spec import load

    return load(spec, changes or (), os=system, iso=iso, rehearse=rehearse)


def own_programs(
    kubelet: list[Path] | None, kubeadm: list[Path] | None, kube_proxy: list[Path] | None
) -> tuple[tuple[str, Path], ...]:
    """The person's own programs, by the names of their flags."""
    given = {"kubelet": kubelet, "kubeadm": kubeadm, "kube-proxy": kube_proxy}
    return tuple((program, path.expanduser()) for program, paths in given.items() for path in paths or ())


def watched(name: str, work: Callable[[Progress], T], output: Output, usual: float) -> T:
    """Do the work as a step, so that it is shown as all steps are; its result."""
    from winlab.cli.progress import shown
    from winlab.engine import engine
    from winlab.engine.step import Step
    from winlab.steps.states import WORK

    results: list[T] = []
    with shown(output) as tell:
        step = Step(WORK(of=name), lambda voice: results.append(work(voice)), lambda: False, usual=usual)
        engine.run([step], tell)
    return results[0]
