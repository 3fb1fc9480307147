"""Whole numbers in texts from elsewhere: variables, flags, files of others."""

from __future__ import annotations

MOST = 9  # digits: Python refuses thousands of them, and the system no process, run or second is numbered so


def is_number(text: str) -> bool:
    """Whether a text is a whole number of some size; ``str.isdigit`` also takes other scripts' digits, and ``²``."""
    return text.isascii() and text.isdigit() and len(text) <= MOST
