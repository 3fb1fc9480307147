"""A wrong clock."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from winlab.design.contract.on_both import Faults
from winlab.design.fault.base import InnerFault, Places

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST = 3650 * 86400  # seconds


def parse(value: Any) -> Any:
    """``"+2h"`` → 7200, ``"-1d12h"`` → -129600. A plain number counts seconds. Anything else raises ValueError."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    match = re.fullmatch(r"([+-]?)((?:\d{1,9}[smhd])+|\d{1,12})", text)
    if match is None:
        raise ValueError(f"'{value}' is not a time; write for example +2h, -30m or +1d12h")
    parts = re.findall(r"(\d+)([smhd]?)", match[2])
    seconds = sum(int(count) * SECONDS[unit or "s"] for count, unit in parts)
    return -seconds if match[1] == "-" else seconds


def _is_one(seconds: int) -> int:
    if seconds == 0:
        raise ValueError("a clock that is right is not a fault")
    return seconds


def shown(seconds: int) -> str:
    """7200 → ``2 h``."""
    rest, parts = abs(seconds), []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, SECONDS[unit])
        if count:
            parts.append(f"{count} {'min' if unit == 'm' else unit}")
    return " ".join(parts)


class Clock(InnerFault):
    """A node's clock is ahead or behind, and nothing sets it right."""

    kind = "clock"
    about = "Set a node's clock wrong, and stop what would set it right."

    skew: Annotated[int, BeforeValidator(parse), AfterValidator(_is_one)] = Field(
        description="By how much: +2h is ahead; write --skew=-30m for what is behind.", ge=-MOST, le=MOST
    )

    def effect(self) -> str:
        """What it does, for display."""
        return f"its clock is {shown(self.skew)} {'ahead' if self.skew > 0 else 'behind'}"

    def done_by(self, node: str, places: Places, call: Faults) -> Faults:
        """The call with the skew."""
        del node, places
        return replace(call, skew=self.skew)
