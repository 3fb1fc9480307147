"""A bar chart as SVG: one bar a row, on a logarithmic scale because a clone and a cold create differ a thousandfold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, LABELS, ROW, TOP = 760, 230, 28, 62  # pixels: the labels' column, a row, what is above the first row
BARS = WIDTH - LABELS - 90  # the longest bar; its value stands behind it
COLOURS = {"text": "#24292f", "bar": "#2f6fab", "line": "#d0d7de", "paper": "#ffffff"}


def scale(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten between which all values are; at least one apart."""
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def draw(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """The chart of *rows*: names and values in seconds. Values that are not positive are left out."""
    rows = [(name, value) for name, value in rows if value > 0]
    height = TOP + ROW * len(rows) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="13" fill="{COLOURS["text"]}" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="{COLOURS["paper"]}"/>',
        f'<text x="12" y="24" font-weight="bold">{escape(title)}</text>',
    ]
    if rows:
        low, high = scale([value for _, value in rows])
        for power in range(low, high + 1):
            parts += _line(LABELS + BARS * (power - low) / (high - low), height, f"{10.0**power:g} s")
        for number, row in enumerate(rows):
            parts += _bar(TOP + ROW * number, *row, low, high)
    return "\n".join([*parts, "</svg>\n"])


def _line(x: float, height: int, text: str) -> list[str]:
    return [
        f'<path d="M{x:.1f} {TOP - 8}V{height - 8}" stroke="{COLOURS["line"]}"/>',
        f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle" font-size="11">{text}</text>',
    ]


def _bar(y: int, name: str, value: float, low: int, high: int) -> list[str]:
    width = max(1.0, BARS * (math.log10(value) - low) / (high - low))
    middle = y + ROW / 2
    return [
        f'<text x="{LABELS - 10}" y="{middle + 1:.0f}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{LABELS}" y="{y + 3}" width="{width:.1f}" height="{ROW - 10}" fill="{COLOURS["bar"]}"/>',
        f'<text x="{LABELS + width + 6:.1f}" y="{middle + 1:.0f}">{value:.3g} s</text>',
    ]
