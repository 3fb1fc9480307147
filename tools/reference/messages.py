"""The messages of errors, found in the source: their first words, exit codes and cures."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from winlab import errors

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "…"  # in place of what is only known when the error occurs
KINDS = {
    name: int(kind.exit_code)
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.WinlabError)
}
# Of docs/exit-codes.md, in short
MEANS = {
    1: "a bug, or an error without a code of its own",
    2: "wrong input; nothing was touched",
    4: "the host",
    5: "not found",
    6: "something is in the way",
    7: "permissions",
    8: "no progress",
    9: "a guest",
    10: "a download",
    11: "Kubernetes",
}


class Message(NamedTuple):
    """What an error says, with :data:`VARIABLE` for what varies."""

    what: str
    code: int
    cure: str


def messages(folder: Path = ROOT / "winlab") -> list[Message]:
    """All messages, by their first words. Those without a constant word are left out."""
    found = {one for path in folder.rglob("*.py") for one in _messages(ast.parse(path.read_bytes()))}
    return sorted(found, key=lambda one: (one.what.lstrip(f"'{VARIABLE} ").lower(), one))


def _messages(module: ast.Module) -> Iterator[Message]:
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args):
            continue
        cure = next((_text(one.value) for one in node.keywords if one.arg == "cure"), "")
        what = _text(node.args[0])
        if what.strip(f"{VARIABLE}'. "):
            yield Message(what, KINDS[node.func.id], "" if cure == VARIABLE else cure)


def _text(node: ast.expr) -> str:
    """The text of a string, and of those that are chosen or formatted, as far as it is in the source."""
    if isinstance(node, ast.Constant):
        return str(node.value or "")
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(one) for one in node.values)
    return VARIABLE


def page() -> str:
    """The page's generated part: one table for each exit code."""
    parts, every = [], messages()
    for code, means in MEANS.items():
        rows = [one for one in every if one.code == code]
        parts += [f"## {code}: {means}", "| message | what to do |\n| --- | --- |"]
        parts[-1] += "".join(f"\n| {_cell(one.what)} | {_cell(one.cure)} |" for one in rows)
    return "\n\n".join(parts)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "&#124;").replace("<", "&lt;").replace("*", "&#42;").split())
