"""Passwords as answer files carry them."""

from __future__ import annotations

import base64


def encode(password: str, name: str) -> str:
    """*password* for the element *name*: with its name behind it, UTF-16LE, base64."""
    return base64.b64encode((password + name).encode("utf-16-le")).decode()
