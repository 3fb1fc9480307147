"""A recording as an animated SVG, without scripts. Where animations are not shown, it is the last screen."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import chain, groupby

import pyte

from cast.record import Cast

WIDE, HIGH, SIZE, EDGE = 8.4, 18, 14, 14  # pixels: a character, a row, the font, the border
STEP = 0.1  # seconds: changes that are closer together are shown together
PAPER, INK = "#0d1117", "#d0d7de"
COLOURS = {
    "black": "#484f58", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922", "blue": "#58a6ff",
    "magenta": "#bc8cff", "cyan": "#39c5cf", "white": "#b1bac4",
}  # fmt: skip

Style = tuple[str, str, bool, bool]  # colour of the text and behind it, "default" if none; bold; underlined
Row = tuple[tuple[int, str, Style], ...]  # runs of one style: column, text, style
Shown = tuple[int, Row, float, float]  # on which row of the screen, from when to when


def draw(cast: Cast) -> str:
    """The picture, which begins again when it has ended."""
    width, height = round(cast.columns * WIDE + 2 * EDGE), cast.rows * HIGH + 2 * EDGE
    end = max(cast.end, STEP)
    names: dict[Row, str] = {}
    uses = []
    for line, row, begin, until in shown(cast, end):
        name = names.setdefault(row, f"r{len(names)}")
        stays = until >= end
        when = f'begin="all.begin+{0 if stays else begin:g}s" dur="{begin if stays else round(until - begin, 3):g}s"'
        change = f'<set attributeName="visibility" to="{"hidden" if stays else "visible"}" {when}/>'
        hidden = "" if stays else ' visibility="hidden"'
        y = EDGE + line * HIGH
        uses.append(f'<use href="#{name}" y="{y}"{hidden}>{change if begin or not stays else ""}</use>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="{SIZE}" fill="{INK}" role="img">',
            "<title>A recorded session with winlab</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}">',
            f'<animate id="all" attributeName="opacity" values="1;1" begin="0s;all.end" dur="{end:g}s"/></rect>',
            "<defs>",
            *(f'<g id="{name}">{"".join(_runs(row))}</g>' for row, name in names.items()),
            "</defs>",
            *uses,
            "</svg>\n",
        ]
    )


def shown(cast: Cast, end: float) -> Iterator[Shown]:
    """Which rows are on the screen when; empty rows are left out."""
    now: dict[int, tuple[Row, float]] = {}
    nothing: list[Row] = [()] * cast.rows
    for at, rows in chain(_screens(cast), [(end, nothing)]):
        for line, row in enumerate(rows):
            before, since = now.get(line, ((), 0.0))
            if row == before and at < end:
                continue
            if before and at > since:
                yield line, before, since, at
            now[line] = (row, at)


def _screens(cast: Cast) -> Iterator[tuple[float, list[Row]]]:
    screen = pyte.Screen(cast.columns, cast.rows)
    stream = pyte.Stream(screen)
    for step, events in groupby(cast.events, key=lambda event: int(event[0] / STEP)):
        for _, text in events:
            stream.feed(text)
        yield round(step * STEP, 3), [_row(screen, line) for line in range(cast.rows)]


def _row(screen: pyte.Screen, line: int) -> Row:
    cells = [screen.buffer[line][column] for column in range(screen.columns)]
    runs, column = [], 0
    for style, group in groupby(cells, key=_style):
        text = "".join(cell.data for cell in group)
        if text.strip() or style[1] != "default":
            runs.append((column, text, style))
        column += len(text)
    return tuple(runs)


def _style(cell: pyte.screens.Char) -> Style:
    text, behind = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    if cell.reverse:
        text, behind = (PAPER if text == "default" else text), (INK if behind == "default" else behind)
    return text, behind, cell.bold, cell.underscore


def _colour(name: str) -> str:
    """As CSS: pyte has names, or six hexadecimal digits."""
    plain = name.removeprefix("bright")
    return COLOURS.get(plain, name if name.startswith("#") else f"#{name}")


def _runs(row: Row) -> Iterator[str]:
    for column, text, (colour, behind, bold, underlined) in row:
        x = f"{EDGE + column * WIDE:.1f}"
        if behind != "default":
            yield f'<rect x="{x}" width="{len(text) * WIDE:.1f}" height="{HIGH}" fill="{_colour(behind)}"/>'
        looks = f' fill="{_colour(colour)}"' if colour != "default" else ""
        looks += ' font-weight="bold"' if bold else ""
        looks += ' text-decoration="underline"' if underlined else ""
        long = f' textLength="{len(text.rstrip()) * WIDE:.1f}"' if text.strip() else ""
        yield f'<text x="{x}" y="{HIGH - 4}" xml:space="preserve"{looks}{long}>{escape(text.rstrip())}</text>'
