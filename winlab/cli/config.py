"""Commands for the user's defaults: config list, get, set, unset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from winlab.cli import defaults
from winlab.cli.app import App
from winlab.cli.common import print_table, say
from winlab.cli.kinds import supplies as kinds
from winlab.cli.session import current

app = App(
    help="Your defaults for options. A value comes from the first of: the option on the command line, its WINLAB_* "
    "variable, your settings file, its own default.",
    no_args_is_help=True,
)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="config")


def _complete(ctx: typer.Context) -> list[str]:
    return list(defaults.keys(ctx.find_root().command))


Name = Annotated[str, typer.Argument(help="The setting, such as lab.", metavar="KEY", autocompletion=_complete)]


def _found(key: defaults.Key) -> kinds.Setting:
    """A setting with its value, and where that comes from."""
    if (value := os.environ.get(key.variable)) is None:
        value, origin = key.default, "default"
    else:
        origin = "file" if key.variable in current().from_file else "variable"
    return kinds.Setting(name=key.name, value=value, origin=origin, variable=key.variable, help=key.help)


@app.command("list")
def list_settings(
    ctx: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Also options of single commands.")] = False,
) -> None:
    """List settings with their values, and where each comes from.

    Examples:
      winlab config list
      winlab config list --all   # also options of single commands
    """
    known = defaults.keys(ctx.find_root().command)
    found = [(key, _found(key)) for key in known.values()]
    rows = [row for key, row in found if everything or key.is_general or row.origin != "default"]
    unknown = [
        kinds.Setting(name=name, value=value, origin="file", variable="", help="")
        for name, value in sorted(defaults.read().items())
        if name not in known
    ]
    if current().answer(kinds.Setting, rows + unknown):
        return
    print_table(["KEY", "VALUE", "FROM", "VARIABLE"], [[r.name, r.value, r.origin, r.variable] for r in rows])
    say(f"Your file: {defaults.path()}")
    for one in unknown:
        say(f"'{one.name}' in it is not a setting of this winlab.", error=True)


@app.command()
def get(ctx: typer.Context, name: Name) -> None:
    """Print the value of a setting.

    Examples:
      winlab config get lab
    """
    row = _found(defaults.find(ctx.find_root().command, name))
    if not current().answer(kinds.Setting, [row]):
        say(row.value)


@app.command("set")
def put(
    ctx: typer.Context,
    name: Name,
    value: Annotated[str, typer.Argument(help="The value; several, separated by blanks, for a list.")],
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
    _show(defaults.write(name, value), f"{name} is '{value}'")
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
def unset(ctx: typer.Context, name: Name) -> None:
    """Remove a default.

    Examples:
      winlab config unset lab
    """
    if name not in defaults.read():
        defaults.find(ctx.find_root().command, name)
    _show(defaults.write(name, None), f"{name} is unset")


def _show(file: Path, what: str) -> None:
    if not current().answer(kinds.File, [kinds.File.of(file)]):
        say(f"{what}, in {file}")
