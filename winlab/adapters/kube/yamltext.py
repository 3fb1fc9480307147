"""Edits a YAML mapping of lists as text, so that comments and layout stay. Pure.

Only what a kubeconfig needs: to remove rows of a top-level list, add rows at its end, and replace a top-level word. The
result is parsed to check it. If the layout does not allow the edit (flow style, anchors), the whole text is written
again, which loses only the comments.
"""

from __future__ import annotations

from typing import Any

import yaml

from winlab import documents


def edit(text: str, wanted: dict[str, Any]) -> str:
    """*text*, changed so that it reads as *wanted*.

    :param text: a YAML mapping, or empty.
    """
    try:
        changed = _edit(text, wanted)
        if documents.from_yaml(changed) == wanted:
            return changed
    except (yaml.YAMLError, _OtherLayoutError):
        pass
    return yaml.safe_dump(wanted, sort_keys=False)


class _OtherLayoutError(Exception):
    """The text is not laid out in the usual way."""


def _edit(text: str, wanted: dict[str, Any]) -> str:
    root = documents.nodes(text)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        raise _OtherLayoutError
    before = documents.from_yaml(text)
    keys = [key.value for key, _ in root.value]
    if set(keys) != set(before) or len(keys) != len(before):  # keys that are no plain words, or twice there
        raise _OtherLayoutError
    lines = [line if line.endswith("\n") else f"{line}\n" for line in text.splitlines(keepends=True)]
    changed = [(key, value) for key, value in root.value if wanted.get(key.value) != before[key.value]]
    for key, node in reversed(changed):  # backwards, so that earlier line numbers stay valid
        value = wanted[key.value]
        if isinstance(value, list) and isinstance(node, yaml.SequenceNode) and not node.flow_style:
            _change_list(lines, key, node, before[key.value], value)
        else:
            _replace(lines, key, node, value)
    return "".join(lines) + _dump({key: value for key, value in wanted.items() if key not in before})


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False) if value else ""


def _change_list(
    lines: list[str], key: yaml.Node, node: yaml.SequenceNode, before: list[Any], wanted: list[Any]
) -> None:
    """Remove the rows that are not wanted, and add the new ones at the end."""
    kept = [index for index, row in enumerate(before) if row in wanted]
    begins = [item.start_mark.line for item in node.value]
    ends = [_last_line(lines, item) + 1 for item in node.value]
    indent = " " * node.start_mark.column
    lines[ends[-1] : ends[-1]] = [indent + line for line in _dump(wanted[len(kept) :]).splitlines(keepends=True)]
    for index in reversed(range(len(before))):
        if index not in kept:
            del lines[begins[index] : ends[index]]
    if not wanted:
        line, place = lines[key.end_mark.line], key.end_mark.column
        lines[key.end_mark.line] = f"{line[:place]}: []{line[place:].removeprefix(':')}"


def _last_line(lines: list[str], item: yaml.Node) -> int:
    """The last line of a row; for the parser a row ends only where the next node begins."""
    last = (
        min(item.end_mark.line, len(lines)) - 1 if item.end_mark.line > item.start_mark.line else item.start_mark.line
    )
    while last > item.start_mark.line and (not lines[last].strip() or lines[last].lstrip().startswith("#")):
        last -= 1
    return last


def _replace(lines: list[str], key: yaml.Node, node: yaml.Node, value: Any) -> None:
    """Replace the value of a key; a comment after a word stays."""
    start, end, number = node.start_mark, node.end_mark, key.start_mark.line
    if isinstance(value, str) and number == start.line == end.line:
        line = lines[number]
        word = yaml.safe_dump(value, default_flow_style=True).partition("\n")[0]
        lines[number] = f"{line[: start.column].rstrip()} {word}{line[end.column :]}"
    else:
        lines[number : number + 1] = _dump({key.value: value}).splitlines(keepends=True)
