"""A slow line."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from winlab.design.fault.base import Places, SwitchFault, SwitchRule, ports, sent_by


class Bandwidth(SwitchFault):
    """Packets above a rate are dropped, in each direction by itself."""

    kind = "bandwidth"
    about = "Limit what a node sends and what it gets, each; or what two nodes send each other."
    pairs = True

    mbit: float = Field(description="Megabits in a second.", ge=0.1, le=100_000)

    def effect(self) -> str:
        """What it does, for display."""
        return f"at most {self.mbit:g} Mbit/s each way"

    def rules(self, places: Places) -> tuple[SwitchRule, ...]:
        """A meter for each direction."""
        kbit = round(self.mbit * 1000)
        if len(self.nodes) == 1:
            own = ports(places, self.nodes)
            ways: tuple[tuple[str, Literal["from-lport", "to-lport"]], ...] = (
                ("inport", "from-lport"),
                ("outport", "to-lport"),
            )
            return tuple(SwitchRule(f"{field} == {own}", direction, kbit) for field, direction in ways)
        ends = self.nodes[:1], self.nodes[1:]
        return tuple(
            SwitchRule(f"outport == {ports(places, to)} && {sent_by(places, of)}", kbit=kbit, priority=1001)
            for of, to in (ends, ends[::-1])
        )
