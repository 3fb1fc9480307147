"""Symbols for terminals and files that can't show them: lookalikes in ASCII."""

from __future__ import annotations

import os
from typing import TextIO

_LOOKALIKES = str.maketrans(
    {"✓": "+", "✗": "x", "…": "...", "→": "->", "█": "#", "·": ".", "•": "*", "≤": "<=", "–": "-", "─": "-", "│": "|"}
)
_C = ("C", "POSIX")


def shows_symbols(stream: TextIO) -> bool:
    """Whether winlab's symbols can be written to a stream, and are shown where it leads.

    In the locale C, Python itself writes UTF-8 (PEP 540), whatever the terminal shows.
    """
    try:
        "✓".encode(stream.encoding or "utf-8")  # a text in memory has no encoding
    except (UnicodeEncodeError, LookupError):
        return False
    locale = next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return locale not in _C


def fit(text: str, stream: TextIO) -> str:
    """A text with lookalikes for the symbols that a stream can't show."""
    return text if text.isascii() or shows_symbols(stream) else text.translate(_LOOKALIKES)
