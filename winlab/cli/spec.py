"""Commands for specs: explain, show, schema, list."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from winlab.cli.app import App, NoResult
from winlab.cli.common import print_table, say
from winlab.cli.complete import complete_specs
from winlab.cli.session import current
from winlab.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from winlab.design.spec.options import Option

app = App(help="What a spec can contain.", no_args_is_help=True)


def register(main: typer.Typer) -> None:
    """Add the command to *main*."""
    main.add_typer(app, name="spec")


def _complete_paths(incomplete: str) -> list[str]:
    from winlab.design.spec import Spec, options

    return [
        path
        for path in [*options.sections(Spec), *(o.path for o in options.options(Spec))]
        if path.startswith(incomplete)
    ]


@app.command()
def explain(
    path: Annotated[
        str,
        typer.Argument(
            metavar="[PATH]",
            help="A field or a section, such as workers.cpus or network; default: all fields.",
            autocompletion=_complete_paths,
            show_default=False,
        ),
    ] = "",
) -> None:
    """Explain a field of the spec: its meaning, its valid values, and every way to set it.

    Examples:
      winlab spec explain workers.cpus
      winlab spec explain network
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.design.spec import Spec, options

    rows = options.find(Spec, path)
    if current().answer(kinds.SpecField, (kinds.SpecField.made_of(row, "path") for row in rows)):
        return
    if len(rows) == 1 and rows[0].path == path:
        say(_explained(rows[0]))
    else:
        _show(rows, options.sections(Spec))


@app.command(cls=NoResult)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="A spec from 'winlab spec list'.", autocompletion=complete_specs, show_default=False
        ),
    ] = "1-1-1",
) -> None:
    """Print a spec's file, to read it or to begin your own. Default: the smallest one.

    Examples:
      winlab spec show > lab.yaml
      winlab spec show mixed
    """
    from winlab.design import spec
    from winlab.design.spec.load import path_of
    from winlab.near import did_you_mean

    if name not in (known := spec.names()):
        cure = f"{did_you_mean(name, known)}'winlab spec list' shows all of them."
        raise NotFoundError(f"There is no spec '{name}'.", cure=cure)
    say(path_of(name).read_text(encoding="utf-8"), end="")


@app.command(cls=NoResult)
def schema() -> None:
    """Print the JSON Schema of specs, which editors use for checks and completion.

    Examples:
      winlab spec schema > winlab.schema.json
    """
    from winlab.design.spec.schema import text

    sys.stdout.write(text())


@app.command("list")
def list_specs() -> None:
    """Show the specs in specs/, which can be used by name.

    Examples:
      winlab spec list
    """
    from winlab.cli.kinds import supplies as kinds
    from winlab.design import spec
    from winlab.design.spec.load import path_of, summary

    specs = {name: spec.load(name, environment={}) for name in spec.names()}
    found = (
        kinds.Spec(
            name=name,
            controllers=made.controllers.count,
            workers=[kinds.SpecPool(pool.name, pool.count, pool.os) for pool in made.pools],
            summary=summary(name),
            file=str(path_of(name)),
        )
        for name, made in specs.items()
    )
    if current().answer(kinds.Spec, found):
        return
    rows = []
    for name, made in specs.items():
        workers = ", ".join(f"{pool.count} {pool.os}" for pool in made.pools)
        rows.append([name, str(made.controllers.count), workers, summary(name)])
    print_table(["NAME", "CONTROLLERS", "WORKERS", "WHAT IT IS"], rows)


def _explained(row: Option) -> str:
    """One field, in full."""
    from winlab.design.spec.fields import MIB

    section, _, field = row.path.rpartition(".")
    flags = [row.flag] if row.flag else []
    value = "@FILE" if row.secret else _quoted(row.example)
    flags.append(f"--set {row.path}={value}")
    facts = [
        ("values", row.values),
        ("unit", f"{row.unit}, unless the value has its own" if row.unit == MIB else row.unit),
        ("default", row.default),
        ("systems", row.systems),
        ("flag", ", ".join(flags)),
        ("", f"for one pool: --set {section}.NAME.{field}={value}" if section == "workers" else ""),
        ("variable", row.variable or "none: it is a list"),
        ("example", f"{section}: {{{field}: {row.example}}}" if section else f"{field}: {row.example}"),
    ]
    lines = [f"{row.path}: {row.meaning}."]
    return "\n".join(lines + [f"  {name + ':' if name else '':<10} {text}" for name, text in facts if text])


def _quoted(value: str) -> str:
    return f"'{value}'" if set(value) & set(" []{}~,*") else value


def _show(rows: Sequence[Option], sections: dict[str, str]) -> None:
    """The fields, section by section."""
    for name in dict.fromkeys(row.section for row in rows):
        if name:
            say(f"{name}: {sections[name]}")
        print_table(
            ["FIELD", "VALUES", "DEFAULT", "MEANING"],
            [[row.path, row.values, row.default, row.meaning] for row in rows if row.section == name],
        )
    say("'winlab spec explain FIELD' shows more about one, with its flag and variable.")
