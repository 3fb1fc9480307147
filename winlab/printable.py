"""Text from elsewhere, made safe to show: a guest, a mirror, a cluster or a file may have written it.

A terminal obeys what it is sent: an escape sequence sets its title, fills the clipboard, or hides what was printed
before. Bidirectional overrides show text in another order than it has. People trust lines that look like winlab's own,
such as ``  cure:     Run ...``: among such lines, text from elsewhere is on one line, or indented.
"""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# C0 but \t and \n, DEL, C1; the marks, embeddings, overrides and isolates of bidirectional text (Unicode UAX #9); other
# ends of lines; what takes no space, but for joiners, which scripts and emoji need; tags; and halves of characters,
# which Python makes of file names that are not UTF-8
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """The text with every character replaced that is not to be shown. A Windows line end becomes ``\\n``."""
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A text without line ends: each becomes a space."""
    return text.replace("\n", " ")


def indented(text: str, column: int) -> str:
    """A text whose lines after the first one begin at this column."""
    return text.replace("\n", "\n" + " " * column)


def within(value: Any) -> Any:
    """A value of JSON with all of its texts printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {within(key): within(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [within(one) for one in value]
    return value
