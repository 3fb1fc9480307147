"""Injected faults: ``winlab fault add KIND``, ``list``, ``clear``. Each kind is a command, made from its fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from winlab import settings
from winlab.cli.app import App, Group
from winlab.cli.common import Anyone, NodeName, print_table, say
from winlab.cli.complete import complete_faults, complete_nodes
from winlab.cli.session import LabName, current
from winlab.cli.words import LabWord, bare_nodes

if TYPE_CHECKING:
    from winlab import Lab
    from winlab.design.fault import Fault

app = App(help="Inject faults into a lab: lost packets, full disks, wrong clocks ...", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="fault")


Other = Annotated[
    str | None,
    typer.Argument(
        help="The other node; without it, all others of the lab.",
        autocompletion=complete_nodes,
        callback=bare_nodes,
        metavar="[OTHER]",
    ),
]
Which = Annotated[
    str,
    typer.Argument(
        help="A fault, or a node; without it, all.",
        autocompletion=complete_faults,
        callback=bare_nodes,
        metavar="[FAULT|NODE]",
    ),
]


def active(lab: Lab) -> list[Fault]:
    """The lab's faults, for commands that only mention them: none if OVN does not answer."""
    from winlab.errors import AccessError, HostError

    try:
        return lab.faults()
    except (AccessError, HostError):
        return []


def _answer(lab: str, faults: list[Fault]) -> bool:
    from winlab.cli.kinds import labs as kinds

    rows = [
        kinds.Fault(
            name=one.id,
            lab=lab,
            kind=one.kind,
            nodes=list(one.nodes),
            settings=one.settings,
            effect=one.effect(),
            unfinished=one.unfinished,
        )
        for one in faults
    ]
    return current().answer(kinds.Fault, rows)


def _command(kind: type[Fault]) -> Callable[..., None]:
    """The command that adds faults of a kind: its nodes, and a flag for each of its settings."""

    def work(**given: Any) -> None:
        from winlab import Lab

        nodes = [given["node"], *([given["other"]] if given.get("other") else [])]
        values = {name: given[name] for name in flags if given[name] is not None}
        with current().shown() as tell:
            fault = Lab(given["lab"], anyone=given["anyone"]).add_fault(kind.kind, *nodes, listener=tell, **values)
        if not _answer(given["lab"], [fault]):
            say(f"{fault.id}: {fault.effect()}.")

    flags = {name: field for name, field in kind.model_fields.items() if name != "nodes"}
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("node", keyword, annotation=NodeName)]
    if kind.pairs:
        parameters.append(inspect.Parameter("other", keyword, default=None, annotation=Other))
    for name, field in flags.items():
        option = typer.Option(f"--{name}", help=field.description, show_default=False)
        # what has units is parsed by the kind itself
        base: Any = field.annotation if field.annotation in (int, float) and not _has_units(field) else str
        needed = field.is_required()
        parameters.append(
            inspect.Parameter(
                name,
                keyword,
                default=inspect.Parameter.empty if needed else None,
                annotation=Annotated[base if needed else base | None, option],
            )
        )
    parameters.append(inspect.Parameter("lab", keyword, default=settings.DEFAULT_LAB, annotation=LabName))
    parameters.append(inspect.Parameter("anyone", keyword, default=False, annotation=Anyone))
    work.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    work.__annotations__ = {one.name: one.annotation for one in parameters}
    work.__doc__ = kind.about
    return work


def _has_units(field: Any) -> bool:
    from pydantic import BeforeValidator

    return any(isinstance(one, BeforeValidator) for one in field.metadata)


class _Kinds(Group):
    """The commands of all kinds, made on demand: importing the kinds takes as long as everything else."""

    @functools.cached_property
    def _made(self) -> dict[str, Any]:
        from winlab.design.fault import KINDS

        kinds = App()
        for kind in KINDS.values():
            kinds.command(kind.kind)(_command(kind))
        group = typer.main.get_command(kinds)
        assert isinstance(group, TyperGroup)
        return dict(group.commands)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """The kinds."""
        return list(self._made)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command of a kind; None if there is no such kind."""
        return self._made.get(cmd_name)


add = App(cls=_Kinds, no_args_is_help=True)
app.add_typer(add, name="add")


@add.callback()
def _add() -> None:
    """Inject a fault into a node, or between two. Adding it again with other settings changes it."""


@app.command("list")
def list_faults(_word: LabWord = None, lab: LabName = settings.DEFAULT_LAB) -> None:
    """List the faults of a lab.

    Examples:
      winlab fault list
      winlab fault list ci -o json
    """
    from winlab import Lab

    faults = Lab(lab).faults()
    if _answer(lab, faults):
        return
    if not faults:
        say(f"The lab '{lab}' has no faults.")
    else:
        rows = [[one.label, " and ".join(one.nodes), one.effect()] for one in faults]
        print_table(["FAULT", "NODES", "EFFECT"], rows)
        if any(one.unfinished for one in faults):
            say("Whether an unfinished fault was done is not known: add it again, or clear it.")


@app.command()
def clear(
    which: Which = "",
    lab: LabName = settings.DEFAULT_LAB,
    anyone: Anyone = False,
) -> None:
    """Undo faults: one, those of a node, or all.

    Examples:
      winlab fault clear
      winlab fault clear node-1
    """
    from winlab import Lab

    with current().shown() as tell:
        cleared = Lab(lab, anyone=anyone).clear_faults(which, listener=tell)
    if not _answer(lab, cleared):
        say(f"Cleared: {', '.join(one.id for one in cleared)}." if cleared else "There is nothing to clear.")
