"""Lost packets."""

from __future__ import annotations

from pydantic import Field

from winlab.design.contract.on_both import LinkFault
from winlab.design.fault.base import Place
from winlab.design.fault.link import PacketFault


class Loss(PacketFault):
    """Packets in both directions are dropped at random."""

    kind = "loss"
    about = "Lose packets between a node and another one, or all others of the lab; in both directions."

    percent: float = Field(description="How many packets of a hundred are lost.", ge=0.01, le=100)

    def effect(self) -> str:
        """What it does, for display."""
        return f"{self.percent:g} % of the packets are lost"

    def link(self, place: Place) -> LinkFault:
        """The fault of the packets to and from a node."""
        return LinkFault(mac=place.mac, addresses=list(place.sources), loss=self.percent)
