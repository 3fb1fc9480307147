"""Puts a combination and its pins into the text of known-good.yaml. Comments and all other rows stay unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from pydantic import BaseModel

from known_good.wanted import modules_of
from winlab.design.catalog.pins import Pins
from winlab.design.catalog.versions import KnownGood, Versions

TOOL = "tools/new_kubernetes.py"
MADE = f"# By {TOOL}"
LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: much faster


@dataclass(frozen=True)
class _Item:
    """A row of a list in the text: its lines and its content."""

    first: int
    end: int
    content: dict[str, str]


def changed(text: str, row: Versions, pins: Pins, why: Sequence[str]) -> str:
    """The text with the combination *row*, in place of another one of its minor version, and with *pins*.

    What only the replaced combination needed is left out.

    :param why: comment lines that say where the versions come from, and when this tool wrote them.
    :raises ValueError: the result would not be valid.
    """
    lines = text.splitlines()
    rows = [item for item in _items(lines, "combinations") if Versions.model_validate(item.content).name == row.name]
    lines = _without(lines, [_with_comment(lines, item) for item in rows])
    older = (
        item.first for item in _items(lines, "combinations") if Versions.model_validate(item.content).minor < row.minor
    )
    at = min(older, default=_end(lines, "combinations"))
    lines[at:at] = [*_comment(why, 0), *_yaml([row.by_name], 0)]
    if rows:
        lines = _without_unused(lines)
    about = _comment([f"For Kubernetes {row.kubernetes}, by {TOOL}."], 2)
    for name in ("programs", "images", "modules"):
        added = getattr(pins, name)
        if added:
            at = _begin(lines, name) if name != "modules" else _end(lines, "pins", name)
            lines[at:at] = [*(about if name != "modules" else []), *_yaml([_row(pin) for pin in added], 2)]
    made = "\n".join(lines) + "\n"
    KnownGood.model_validate(yaml.load(made, LOADER))  # noqa: S506 - a safe one
    return made


def _without_unused(lines: list[str]) -> list[str]:
    """Without the pins of versions that no combination has."""
    rows = [Versions.model_validate(item.content) for item in _items(lines, "combinations")]
    versions = {version for row in rows for version in row.by_name.values()}
    modules = {module for row in rows for module in modules_of(row)}
    unused: dict[str, Callable[[dict[str, str]], bool]] = {
        "modules": lambda row: (row["path"], row["version"]) not in modules,
        "images": lambda row: row["reference"].rpartition(":")[2] not in versions,
        "programs": lambda row: row["version"] not in versions,
    }
    for name, is_unused in unused.items():
        lines = _without(lines, [item for item in _items(lines, "pins", name) if is_unused(item.content)])
    # this tool's comments on rows that are all gone
    after = [*lines[1:], ""]
    return [
        line
        for line, next_one in zip(lines, after, strict=True)
        if not (line.endswith(f", by {TOOL}.") and not next_one.startswith("  - "))
    ]


def _without(lines: list[str], items: Sequence[_Item]) -> list[str]:
    gone = {number for item in items for number in range(item.first, item.end)}
    return [line for number, line in enumerate(lines) if number not in gone]


def _with_comment(lines: Sequence[str], item: _Item) -> _Item:
    """The row with the comment that this tool wrote above it."""
    first = item.first
    while lines[first - 1].startswith("#"):
        first -= 1
    return replace(item, first=first) if lines[first].startswith(MADE) else item


def _node(lines: Sequence[str], *keys: str) -> yaml.Node:
    node = yaml.compose("\n".join(lines), LOADER)
    for key in keys:
        assert isinstance(node, yaml.MappingNode)
        node = next(value for name, value in node.value if name.value == key)
    assert node is not None
    return node


def _items(lines: Sequence[str], *keys: str) -> list[_Item]:
    node = _node(lines, *keys)
    assert isinstance(node, yaml.SequenceNode)
    return [
        _Item(
            row.start_mark.line,
            max(value.end_mark.line for _, value in row.value) + 1,  # its own end is behind the comments that follow
            {key.value: value.value for key, value in row.value},
        )
        for row in node.value
    ]


def _begin(lines: Sequence[str], name: str) -> int:
    """The line after the key of a list of pins."""
    return lines.index(f"  {name}:") + 1


def _end(lines: Sequence[str], *keys: str) -> int:
    """The line after a list's last row."""
    return max(item.end for item in _items(lines, *keys))


def _row(pin: BaseModel) -> dict[str, Any]:
    """A row with its keys in the order of those that were written manually."""
    row = pin.model_dump(exclude_none=True)
    first = ("name", "version", "os") if "name" in row else ()
    return {key: row[key] for key in (*first, *row)}


def _yaml(rows: Sequence[dict[str, Any]], indent: int) -> list[str]:
    text = yaml.safe_dump(list(rows), sort_keys=False, width=1000)
    return [" " * indent + line for line in text.splitlines()]


def _comment(lines: Sequence[str], indent: int) -> list[str]:
    return [" " * indent + "# " + line for line in lines]
