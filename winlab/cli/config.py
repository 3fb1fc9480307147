"""Commands for the user's defaults: config list, get, set, unset."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from winlab.cli import defaults
from winlab.cli.app import App
from winlab.cli.common import Output, print_table, say
from winlab.cli.session import Format, current

app = App(
    help="Your defaults for options. A value comes from the first of: the option on the command line, its WINLAB_* "
    "variable, your settings file, its own default.",
    no_args_is_help=True,
)


def _complete(ctx: typer.Context) -> list[str]:
    return list(defaults.keys(ctx.find_root().command))


Name = Annotated[str, typer.Argument(help="The setting, such as lab.", metavar="KEY", autocompletion=_complete)]


def _found(key: defaults.Key) -> tuple[str, str]:
    """A setting's value, and where it comes from."""
    if (value := os.environ.get(key.variable)) is None:
        return key.default, "default"
    return value, "file" if key.variable in current().from_file else "variable"


@app.command("list")
def list_settings(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also options of single commands.")] = False,
    output: Format = Output.TABLE,
) -> None:
    """List settings with their values, and where each comes from.

    Examples:
      winlab config list
      winlab config list --all   # also options of single commands
    """
    rows = []
    known = defaults.keys(ctx.find_root().command)
    for key in known.values():
        value, origin = _found(key)
        if everything or key.is_general or origin != "default":
            rows.append({"key": key.name, "value": value, "origin": origin, "variable": key.variable, "help": key.help})
    unknown = sorted(set(defaults.read()) - set(known))
    if output is Output.JSON:
        current().result = {"file": str(defaults.path()), "settings": rows, "unknown": unknown}
        return
    print_table(
        ["KEY", "VALUE", "FROM", "VARIABLE"], [[r["key"], r["value"], r["origin"], r["variable"]] for r in rows]
    )
    say(f"Your file: {defaults.path()}")
    for name in unknown:
        say(f"'{name}' in it is not a setting of this winlab.", error=True)


@app.command()
def get(ctx: typer.Context, name: Name, output: Format = Output.TABLE) -> None:
    """Print the value of a setting.

    Examples:
      winlab config get lab
    """
    key = defaults.find(ctx.find_root().command, name)
    value, origin = _found(key)
    if output is Output.JSON:
        current().result = {"key": key.name, "value": value, "origin": origin, "variable": key.variable}
        return
    say(value)


@app.command("set")
def put(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(help="The value; several, separated by blanks, for a list.")],
    output: Format = Output.TABLE,
) -> None:
    """Set a default for an option.

    Examples:
      winlab config set lab ci
      winlab config set mirror https://mirror.example.org/winlab
      winlab config set node.add.count 2
    """
    key = defaults.find(ctx.find_root().command, name)
    if key.option is not None:
        _check(ctx, key.option, value)
    _show(defaults.write(name, value), f"{name} is '{value}'", output)
    if os.environ.get(key.variable, value) != value and key.variable not in current().from_file:
        say(f"The variable {key.variable} is set, and counts more.", error=True)


def _check(ctx: Any, option: Any, value: str) -> None:
    """Check that an option takes a value.

    :raises typer.BadParameter: it does not.
    """
    options = current().output, current().lab
    several = option.multiple or option.nargs != 1
    option.process_value(ctx, tuple(value.split()) if several else value)
    current().output, current().lab = options  # which the option may have set


@app.command()
def unset(ctx: typer.Context, name: Name, output: Format = Output.TABLE) -> None:
    """Remove a default.

    Examples:
      winlab config unset lab
    """
    if name not in defaults.read():
        defaults.find(ctx.find_root().command, name)
    _show(defaults.write(name, None), f"{name} is unset", output)


def _show(file: object, what: str, output: Output) -> None:
    if output is Output.JSON:
        current().result = {"file": str(file)}
    else:
        say(f"{what}, in {file}")
