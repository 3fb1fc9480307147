"""Late packets."""

from __future__ import annotations

from pydantic import Field, model_validator

from winlab.design.contract.on_both import LinkFault
from winlab.design.fault.base import Place
from winlab.design.fault.link import PacketFault


class Delay(PacketFault):
    """Packets of one direction are late: so a round trip takes longer by as much."""

    kind = "delay"
    about = (
        "Delay packets between a node and another one, or all others of the lab: a round trip takes longer by as much."
    )

    ms: int = Field(description="Milliseconds.", ge=1, le=60_000)
    jitter: int = Field(0, description="By how many milliseconds it varies.", ge=0)

    @model_validator(mode="after")
    def _varies_less(self) -> Delay:
        if self.jitter > self.ms:
            raise ValueError("a delay can't vary by more than itself")
        return self

    def effect(self) -> str:
        """What it does, for display."""
        varies = f" (± {self.jitter} ms)" if self.jitter else ""
        return f"a round trip takes {self.ms} ms{varies} longer"

    def link(self, place: Place) -> LinkFault:
        """The fault of the packets to and from a node."""
        return LinkFault(mac=place.mac, addresses=list(place.sources), delay=self.ms, jitter=self.jitter)
