"""Help pages: plain text, 80 columns. A command's page comes from its docstring, arguments and options.

A paragraph of a docstring that begins with ``Example:`` or ``Examples:`` has the examples: one command a line, and what
it does after a ``#``.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from winlab.cli import tree
from winlab.cli.tree import SHARED, SPEC, SUPPLIES

WIDTH = 80
LEFT = 26  # columns for names; longer ones have a line of their own
SUPPLIES_OF = "create"  # the command whose page describes them, and specs; other pages only name them
OPTIONS = "Options"
FORMATS = "-o (--output) table|wide|json|yaml|name, --events FILE, "
ALSO = "Also: {}-q, --debug, -h."


def page(command: Any, ctx: Any) -> str:
    """The help page of a command."""
    if ctx.parent is None:
        return _front(command, ctx)
    text, examples = read(command.help or "")
    parts = [usage(command, ctx), text]
    if examples:
        parts.append(_section("Examples", shown_examples(examples)))
    params = [one for one in command.get_params(ctx) if not getattr(one, "hidden", False)]
    arguments = [one for one in params if one.param_type_name == "argument" and one.help]
    if arguments:
        parts.append(_section("Arguments", _columns((_word(one), _described(one)) for one in arguments)))
    parts += _options(command, params)
    also = ALSO.format(FORMATS if any(one.name == "output" for one in params) else "")
    names = command.list_commands(ctx) if hasattr(command, "list_commands") else []
    if rows := _commands(command, ctx, names):
        parts.append(_section("Commands", _columns(rows)))
        parts.append(f"Options of a command: '{ctx.command_path} COMMAND --help'.")
    return "\n\n".join(part for part in [*parts, also] if part) + "\n"


def contexts(command: Any, name: str, parent: Any = None) -> Iterator[Any]:
    """A context for a command and each of its commands, those of groups included, that is not hidden."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield context
    for inner in command.list_commands(context) if hasattr(command, "list_commands") else ():
        found = command.get_command(context, inner)
        if not found.hidden:
            yield from contexts(found, inner, context)


def typed(ctx: Any) -> str:
    """A command as it is typed: ``winlab node add``."""
    names: list[str] = []
    while ctx is not None:
        names.insert(0, ctx.info_name or "")
        ctx = ctx.parent
    return " ".join(names)


def summary(command: Any) -> str:
    """The first sentence of a command's help, without its full stop."""
    text = " ".join(read(command.help or "")[0].partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def examples(command: Any) -> list[str]:
    """The examples in a command's help, without what they do."""
    return [line.partition("#")[0].strip() for line in read(command.help or "")[1]]


def _front(command: Any, ctx: Any) -> str:
    """The page of ``winlab`` itself: the table of all commands."""
    parts = [usage(command, ctx), tree.SUMMARY]
    parts.append(_section("Examples", shown_examples(tree.EXAMPLES)))
    known = {name for row, _ in tree.rows() for name in row}
    rows = {title: list(group) for title, group in tree.GROUPS.items()}
    if other := _commands(command, ctx, [name for name in command.list_commands(ctx) if name not in known]):
        rows["More"] = other
    widest = max(len(row) for group in rows.values() for row, _ in group) + 4
    parts.append("\n".join(_section(title, _columns(group, widest)) for title, group in rows.items()))
    parts.append(
        "Each command has --help. Options of all: --lab NAME, -o FORMAT, -q, --debug.\n"
        "NODE can be LAB/NODE. 'winlab config list' shows defaults and variables."
    )
    return "\n\n".join(parts) + "\n"


def usage(command: Any, ctx: Any) -> str:
    """How a command is called."""
    if ctx.parent is None:
        return f"Usage: {ctx.command_path} COMMAND [ARGUMENTS] [OPTIONS]"
    params = command.get_params(ctx)
    words = [_word(one) for one in params if one.param_type_name == "argument"]
    words += ["COMMAND"] if hasattr(command, "commands") and not words else []
    words += [f"{one.opts[0]} {_value(one)}" for one in params if one.param_type_name == "option" and one.required]
    rest = "[ARGUMENTS]" if ctx.allow_extra_args and not hasattr(command, "commands") else "[OPTIONS]"
    return textwrap.fill(f"Usage: {typed(ctx)} {' '.join([*words, rest])}", WIDTH, subsequent_indent=" " * 7)


def read(text: str) -> tuple[str, list[str]]:
    """The paragraphs of a docstring, filled; and its examples."""
    paragraphs, found = [], list[str]()
    for one in inspect.cleandoc(text).partition("\f")[0].split("\n\n"):
        first, colon, rest = one.partition(":")
        if first in ("Example", "Examples") and colon:
            found += [line.strip() for line in rest.splitlines() if line.strip()]
        else:
            paragraphs.append(textwrap.fill(" ".join(one.split()), WIDTH))
    return "\n\n".join(paragraphs), found


def shown_examples(lines: Sequence[str]) -> str:
    """Examples: commands, and in a second column what they do; below them if there is no room."""
    rows = [(command.strip(), text.strip()) for command, _, text in (line.partition("#") for line in lines)]
    widest = max(len(command) for command, _ in rows) + 3
    shown = []
    for command, text in rows:
        if text and widest + len(text) + 2 > WIDTH:
            shown += [f"  {command}", f"      {text}"]
        else:
            shown.append(f"  {command:<{widest}}{text}".rstrip())
    return "\n".join(shown)


def _section(title: str, body: str) -> str:
    return f"{title}:\n{body}"


def _columns(rows: Iterable[tuple[str, str]], left: int | None = None) -> str:
    rows = list(rows)
    left = left or min(max(len(name) for name, _ in rows) + 4, LEFT + 2)
    lines: list[str] = []
    for name, text in rows:
        filled = textwrap.wrap(text, WIDTH - left) or [""]
        if len(name) + 4 > left:
            lines.append(f"  {name}")
        else:
            lines.append(f"{'  ' + name:<{left}}{filled.pop(0)}".rstrip())
        lines += [" " * left + line for line in filled]
    return "\n".join(lines)


def _commands(command: Any, ctx: Any, names: Iterable[str]) -> list[tuple[str, str]]:
    found = [(name, command.get_command(ctx, name)) for name in names]
    return [(name, summary(one)) for name, one in found if one is not None and not one.hidden]


def _options(command: Any, params: Sequence[Any]) -> list[str]:
    """The sections of options. An option that an argument of the same name sets is left out, and so is --help."""
    words = {_word(one).strip("[].") for one in params if one.param_type_name == "argument"}
    panels: dict[str, list[Any]] = {}
    named = {SUPPLIES} if any(one.name == "spec" for one in params) else {SUPPLIES, SPEC}
    for one in params:
        if one.param_type_name != "option" or one.name in ("help", *SHARED):
            continue
        if not one.is_flag and one.name in ("lab", "spec") and one.name.upper() in words:
            continue
        panels.setdefault(getattr(one, "rich_help_panel", None) or OPTIONS, []).append(one)
    sections = []
    for title, found in sorted(panels.items(), key=lambda row: row[0] == SUPPLIES):
        if title in named and command.name != SUPPLIES_OF and len(found) > 2:
            names = ", ".join(one.opts[0] for one in found)
            body = textwrap.fill(names, WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            sections.append(_section(f"{title} ('winlab {SUPPLIES_OF} --help' explains)", body))
        else:
            same: dict[str, list[Any]] = {}
            for one in found:
                same.setdefault(_described(one), []).append(one)  # options with one text have one entry
            rows = [(_flags(*options), text) for text, options in same.items()]
            sections.append(_section(title, _columns(rows)))
    return sections


def _word(argument: Any) -> str:
    """An argument as it is shown: ``NODE``, ``[NODE...]``."""
    name = str(argument.metavar or argument.name.upper()).replace("]...", "...]")
    if argument.nargs != 1 and "..." not in name:
        name += "..."
    return name if argument.required or name.startswith("[") else f"[{name}]"


def _flags(option: Any, *others: Any) -> str:
    """An option as it is shown: ``-s, --spec SPEC``, ``--viewer, --no-viewer``; others follow its name."""
    short, long = ([name for name in option.opts if name.startswith("--") is is_long][:1] for is_long in (False, True))
    text = ", ".join([*short, *long, *option.secondary_opts, *(one.opts[0] for one in others)])
    return text if option.is_flag else f"{text} {_value(option)}"


def _value(option: Any) -> str:
    return str(option.metavar or option.name.strip("_").upper().replace("_", "-"))


def _described(param: Any) -> str:
    text, default = param.help or "", param.default
    if isinstance(default, Enum):
        default = default.value
    shown = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    if shown and param.show_default and "default" not in text.lower():
        text = f"{text.removesuffix('.')} (default: {default})."
    return f"{text} Required." if param.param_type_name == "option" and param.required else text
