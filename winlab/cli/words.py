"""What the command line says of an option in another place: as an argument (LAB, SPEC, LAB/NODE) or before the command.

Each place notes it in the context that all commands of a command line share; :func:`merge` gives it to the option.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import typer

from winlab.cli.complete import complete_labs, complete_specs
from winlab.errors import UsageError

T = TypeVar("T", str, list[str], str | None, list[str] | None)
NOTED = "winlab.noted"  # the key in the context


def note(ctx: typer.Context, option: str, value: Any) -> None:
    """Remember the value of an option that another place gives.

    :raises UsageError: two places give different values.
    """
    held = ctx.meta.setdefault(NOTED, {})
    if held.setdefault(option, value) != value:
        raise _twice(option, held[option], value)


def noted(ctx: typer.Context, option: str) -> Any:
    """The value that another place gave, or None."""
    return ctx.meta.get(NOTED, {}).get(option)


def is_given(ctx: typer.Context, option: str) -> bool:
    """Whether the command line has the option itself, after the command."""
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def merge(ctx: typer.Context) -> None:
    """Give the options of a command what other places say of them. A variable or a default counts less.

    :raises UsageError: the option itself has another value, or the command has no such option.
    """
    known = {one.name for one in ctx.command.get_params(ctx)}
    for option, value in ctx.meta.get(NOTED, {}).items():
        if option not in known:
            raise UsageError(
                f"'{ctx.command_path}' has no option '--{option}'.",
                cure=f"'{ctx.command_path} --help' shows its options.",
            )
        if option not in ctx.params:
            continue  # its callback has used it
        if is_given(ctx, option) and ctx.params[option] != value:
            raise _twice(option, value, ctx.params[option])
        ctx.params[option] = value


def _twice(option: str, first: object, second: object) -> UsageError:
    return UsageError(f"'--{option}' has two values: '{first}' and '{second}'.", cure="Give one of them.")


def bare_nodes(ctx: typer.Context, value: T) -> T:
    """Nodes without the lab of ``LAB/NODE``, which is noted. For the callback of an argument.

    :raises UsageError: no lab can have the name, or two nodes name different labs.
    """
    if isinstance(value, list):
        return [bare_node(ctx, one) for one in value]
    return bare_node(ctx, value) if value else value


def bare_node(ctx: typer.Context, name: str) -> str:
    """As :func:`bare_nodes`, for one node."""
    lab, slash, node = name.rpartition("/")
    if slash:
        note_lab(ctx, lab)
    return node


def note_lab(ctx: typer.Context, lab: str | None) -> str | None:
    """Note the lab that an argument names. For its callback.

    :raises UsageError: no lab can have the name, or another place names another one.
    """
    from winlab.design.plan.lab_name import check_lab_name

    if lab is not None:
        note(ctx, "lab", check_lab_name(lab, own=True))
    return lab


def note_spec(ctx: typer.Context, spec: str | None) -> str | None:
    """Note the spec that an argument names. For its callback.

    :raises UsageError: another place names another one.
    """
    if spec is not None:
        note(ctx, "spec", spec)
    return spec


LabWord = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAB]",
        help="The lab, also as --lab NAME; default: lab.",
        autocompletion=complete_labs,
        callback=note_lab,
        show_default=False,
    ),
]
SpecWord = Annotated[
    str | None,
    typer.Argument(
        metavar="[SPEC]",
        help="CONTROLLERS-WORKERS-HYPERVISORS such as 1-2-1, a name from 'winlab spec list', a YAML file, or -; also "
        "as --spec SPEC.",
        autocompletion=complete_specs,
        callback=note_spec,
        show_default=False,
    ),
]
