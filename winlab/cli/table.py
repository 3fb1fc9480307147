"""Tables for people: as wide as their contents, and never cut.

On a terminal, a table fits its width. If it is too wide, columns that its caller can do without are dropped, and then
long texts are wrapped. If that is not enough, each row becomes a block of lines. In a pipe, every row is one line.
With ``--output wide`` there are all columns, and nothing is wrapped.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextvars import ContextVar

from winlab.cli.glyphs import fit
from winlab.printable import printable

GAP = 2  # spaces between columns
NARROWEST = 20  # characters: a text in a narrower column is hard to read
# What a user looks for first
BAD = ("off", "no", "failed", "missing", "NotReady", "lost", "crashed", "unknown")

wide: ContextVar[bool] = ContextVar("wide", default=False)  # whether the user asked for all columns


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, drop: Sequence[str] = (), details: Collection[str] = ()
) -> None:
    """Print a table on the standard output. A column without any text is left out.

    :param columns: the headings; all empty: no headings are shown.
    :param drop: columns that are left out if there is no room, the first one first.
    :param details: columns that are shown only with ``--output wide``.
    """
    from rich.console import Console
    from rich.text import Text

    class Ours(Console):
        def on_broken_pipe(self) -> None:  # rich would end the process with 1
            raise BrokenPipeError

    console = Ours(soft_wrap=True, highlight=False)
    room = console.width if console.is_terminal and not wide.get() else None
    for line in lines(columns, rows, room, drop=drop, details=() if wide.get() else details):
        text = Text()
        for cell in line:
            is_bad = cell.strip() in BAD or cell.startswith("✗")
            text.append(cell, "red" if is_bad and not console.no_color else "")
        text.rstrip()
        console.print(text)


def lines(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int | None = None,
    *,
    drop: Sequence[str] = (),
    details: Collection[str] = (),
) -> Iterator[list[str]]:
    """The lines of a table, each as cells with the spaces after them.

    :param room: the width that it must fit; None: no limit, and no cell is wrapped.
    """
    table = [[fit(printable(cell), sys.stdout) for cell in row] for row in (columns, *rows)]
    used = [
        place
        for place, name in enumerate(columns)
        if name not in details and (any(row[place] for row in table[1:]) or (name and not rows))
    ]
    widths = _widths(table, used, room)
    for name in drop:
        if widths is not None:
            break
        used = [place for place in used if columns[place] != name]
        widths = _widths(table, used, room)
    if widths is None:
        assert room is not None
        yield from _blocks(table, used, room)
        return
    for row in table if any(columns) else table[1:]:
        wrapped = [_wrap(row[place], widths[place] if room else None) for place in used]
        for number in range(max(map(len, wrapped), default=0)):
            line: list[str] = []
            for place, cell in zip(used, wrapped, strict=True):
                line.append(_padded(cell[number] if number < len(cell) else "", widths[place] + GAP))
            yield line


def _widths(table: list[list[str]], used: list[int], room: int | None) -> dict[int, int] | None:
    """The columns' widths; None if a column would be too narrow."""
    natural = {place: max(_length(line) for row in table for line in row[place].split("\n")) for place in used}
    if room is None:
        return natural
    left = room - GAP * (len(used) - 1)
    if sum(natural.values()) <= left:
        return natural
    found = {}
    remaining = len(used)
    # short columns take what they need, the long ones share the rest
    for place in sorted(used, key=lambda one: natural[one]):
        found[place] = min(natural[place], max(left, 0) // remaining)
        left -= found[place]
        remaining -= 1
    return found if all(found[place] >= min(natural[place], NARROWEST) for place in used) else None


def _blocks(table: list[list[str]], used: list[int], room: int) -> Iterator[list[str]]:
    """Each row as lines of a heading and a cell."""
    heads = max((_length(table[0][place]) for place in used), default=0)
    for number, row in enumerate(table[1:]):
        if number:
            yield []
        for place in used:
            for index, line in enumerate(_wrap(row[place], max(room - heads - GAP, 1))):
                yield [_padded("" if index else table[0][place], heads + GAP), line]


def _wrap(text: str, width: int | None) -> list[str]:
    """A text in lines of at most this width; words that are longer are continued on the next line."""
    if width is None or (_length(text) <= width and "\n" not in text):
        return text.split("\n")
    from rich.console import Console
    from rich.text import Text

    return [line.plain.rstrip() for line in Text(text).wrap(Console(), width, overflow="fold")]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _length(text))


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
