"""All commands with their arguments and options, from the command line itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum

import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from winlab.cli.main import app

OFTEN = 5  # commands that have an option: then it is described once for all
Described = tuple[str, str]  # how an option is written, and its help
Parameter = TyperArgument | TyperOption
Command = TyperCommand | TyperGroup


def commands(group: TyperGroup | None = None, before: str = "winlab") -> Iterator[tuple[str, Command]]:
    """Each command with its whole name, groups before their commands; hidden ones are left out."""
    for name, command in (group or _root()).commands.items():
        if command.hidden:
            continue
        assert isinstance(command, Command)
        yield f"{before} {name}", command
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{before} {name}")


def page() -> str:
    """The page's generated part."""
    every = list(commands())
    count = Counter(one for _, command in every for one in set(_options(command)))
    shared = sorted(one for one, number in count.items() if number >= OFTEN)
    known = {written for written, _ in shared}
    first = [one for one in _options(_root()) if one[0] not in known]
    parts = [_table(first, "for all commands: before the command's name")]
    for name, command in every:
        own = [one for one in _options(command) if one not in shared]
        also = [one[0].split()[0].strip("`,") for one in _options(command) if one in shared and one[0][1] == "-"]
        parts += [f"## {name}", _clean(command.help or ""), f"```\n{_usage(name, command)}\n```"]
        if own:
            parts.append(_table(own, "option"))
        if also:
            parts.append(f"Also: {', '.join(f'`{one}`' for one in also)}.")
    parts += ["## Options of many commands", _table(shared, "option")]
    return "\n\n".join(part for part in parts if part)


def _root() -> TyperGroup:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return root


def _usage(name: str, command: Command) -> str:
    return " ".join([name, *command.collect_usage_pieces(typer.Context(command))])


def _options(command: Command) -> list[Described]:
    """The options of a command, and its arguments that have a help; not its help itself."""
    parameters = [one for one in command.params if isinstance(one, Parameter) and not one.hidden]
    return [(_written(one), _help(one)) for one in parameters if _help(one)]


def _help(parameter: Parameter) -> str:
    text = _clean(getattr(parameter, "help", None) or "").replace("|", "&#124;").replace("<", "&lt;")
    variable = parameter.envvar if isinstance(parameter.envvar, str) else ""
    return f"{text} `{variable}` sets it, too." if variable else text


def _written(parameter: Parameter) -> str:
    takes = parameter.metavar or _kind(parameter.type_descriptor.annotation)
    if isinstance(parameter, TyperArgument):
        return f"`{parameter.metavar or (parameter.name or '').upper()}`"
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda name: (len(name) == 2, name))
    return ", ".join(f"`{name}`" if parameter.is_flag else f"`{name} {takes}`" for name in names)


def _kind(annotation: object) -> str:
    """What an option without a word of its own takes."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "/".join(str(one.value) for one in annotation)
    return "NUMBER" if annotation in (int, float) else "TEXT"


def _clean(text: str) -> str:
    """A help without the line breaks of its source; paragraphs stay."""
    paragraphs = text.replace("\b", "").replace("\f", "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).strip()


def _table(rows: list[Described], head: str) -> str:
    return "\n".join([f"| {head} | |", "| --- | --- |", *(f"| {name} | {words} |" for name, words in rows)])
