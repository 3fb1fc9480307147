"""A full disk."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from winlab.design.contract.on_both import Faults
from winlab.design.fault.base import InnerFault, Places

UNITS = {"": 1} | {
    unit + spelling: size
    for unit, size in (("k", 1 << 10), ("m", 1 << 20), ("g", 1 << 30))
    for spelling in ("", "b", "i", "ib")
}


def parse(value: Any) -> Any:
    """``"50MiB"`` → 52428800. A plain number counts bytes. Anything else raises ValueError with an example."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d{1,15})(?:\.(\d{1,9}))?\s*([a-zA-Z]*)\s*", value)
    if match is None or match[3].lower() not in UNITS:
        raise ValueError(f"'{value}' is not a size; write for example 50MiB or 1GiB")
    unit, fraction = UNITS[match[3].lower()], match[2] or "0"
    return int(match[1]) * unit + int(fraction) * unit // 10 ** len(fraction)


class Disk(InnerFault):
    """A file takes all room of the system's disk but some."""

    kind = "disk"
    about = "Fill a node's system disk."

    free: Annotated[int, BeforeValidator(parse)] = Field(
        50 << 20, description="How much stays free: 50MiB.", ge=0, le=1 << 50
    )

    def effect(self) -> str:
        """What it does, for display."""
        return f"its system disk has {self.free / (1 << 20):g} MiB free"

    def done_by(self, node: str, places: Places, call: Faults) -> Faults:
        """The call with what stays free."""
        del node, places
        return replace(call, free=self.free)
