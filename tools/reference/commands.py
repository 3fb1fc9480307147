"""All commands with their arguments and options, from the command line itself."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from winlab.cli import pages
from winlab.cli.main import app
from winlab.cli.manual import PROGRAM

OFTEN = 5  # commands that have an option: then it is described once for all
Described = tuple[str, str]  # how an option is written, and its help
Parameter = TyperArgument | TyperOption
Command = TyperCommand | TyperGroup


def commands() -> Iterator[tuple[str, Command]]:
    """Each command with its whole name, groups before their commands; hidden ones are left out."""
    for one in _contexts():
        yield pages.typed(one), one.command


def _contexts() -> list[Any]:
    """The contexts of the commands, without that of ``winlab`` itself."""
    return list(pages.contexts(_root(), PROGRAM))[1:]


def page() -> str:
    """The page's generated part."""
    every = _contexts()
    count = Counter(option for one in every for option in set(_options(one.command)))
    shared = sorted(one for one, number in count.items() if number >= OFTEN)
    known = {written for written, _ in shared}
    first = [one for one in _options(_root()) if one[0] not in known]
    parts = [_table(first, "for all commands: before the command's name")]
    for context in every:
        command = context.command
        own = [one for one in _options(command) if one not in shared]
        also = [one[0].split()[0].strip("`,") for one in _options(command) if one in shared and one[0][1] == "-"]
        text, examples = pages.read(command.help or "")
        parts += [f"## {pages.typed(context)}", text, _block(pages.usage(command, context).removeprefix("Usage: "))]
        if examples:
            parts += ["Examples:", _block(textwrap.dedent(pages.shown_examples(examples)))]
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


def _block(text: str) -> str:
    return f"```\n{text}\n```"


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
