"""Sizes as users write them (``2GiB``, ``512 MiB``, ``8G``) and as winlab counts them (MiB)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_UNITS = {
    "": 1,
    "m": 1,
    "mi": 1,
    "mib": 1,
    "g": 1024,
    "gi": 1024,
    "gib": 1024,
    "t": 1024**2,
    "ti": 1024**2,
    "tib": 1024**2,
}


def parse_mib(value: Any) -> Any:
    """``"2GiB"`` → 2048. A plain number counts MiB. Anything else raises ValueError with an example."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("should be a size such as 2GiB or 512MiB")
    match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]*)\s*", str(value))
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"'{value}' is not a size; write for example 2GiB or 512MiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def human(mib: int) -> str:
    """2048 → ``2 GiB``, 1536 → ``1536 MiB``."""
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


Mib = Annotated[int, BeforeValidator(parse_mib), WithJsonSchema({"type": ["integer", "string"]})]
