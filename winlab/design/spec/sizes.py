"""Sizes as users write them (``2GiB``, ``512 MiB``, ``8G``, ``4GB``, ``1.5G``) and as winlab counts them (MiB).

``G``, ``GB`` and ``GiB`` are the same, 1024 MiB, as memory is sold.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

_UNITS = {"": 1} | {
    unit + spelling: size for unit, size in (("m", 1), ("g", 1024), ("t", 1024**2)) for spelling in ("", "b", "i", "ib")
}


def parse_mib(value: Any) -> Any:
    """``"2GiB"`` → 2048. A plain number counts MiB. Anything else raises ValueError with an example.

    A fraction must make whole MiB: 1.5 GiB do.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("should be a size such as 2GiB or 512MiB")
    match = re.fullmatch(r"\s*(\d+)(?:\.(\d{1,9}))?\s*([a-zA-Z]*)\s*", str(value))
    if match is None or match[3].lower() not in _UNITS:
        raise ValueError(f"'{value}' is not a size; write for example 2GiB or 512MiB")
    unit, fraction = _UNITS[match[3].lower()], match[2] or "0"
    part, rest = divmod(int(fraction) * unit, 10 ** len(fraction))
    if rest:
        raise ValueError(f"'{value}' is not a size in whole MiB; write for example 1.5GiB or 1536MiB")
    return int(match[1]) * unit + part


def human(mib: int) -> str:
    """2048 → ``2 GiB``, 1536 → ``1536 MiB``."""
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


Mib = Annotated[int, BeforeValidator(parse_mib), WithJsonSchema({"type": ["integer", "string"]})]
