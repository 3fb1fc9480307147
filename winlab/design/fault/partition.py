"""No packets between nodes."""

from __future__ import annotations

from winlab.design.fault.base import Places, SwitchFault, SwitchRule, ports, sent_by


class Partition(SwitchFault):
    """Nodes don't reach each other, neither inside nor by external addresses; host and internet are still there."""

    kind = "partition"
    about = "Cut a node from another one, or from all others of the lab. The host and the internet still reach it."
    pairs = True

    def effect(self) -> str:
        """What it does, for display."""
        return "no packets pass"

    def check(self, places: Places) -> None:
        """Check that there is a node to be separated from.

        :raises UsageError: there is not.
        """
        self.need_peers(places)

    def rules(self, places: Places) -> tuple[SwitchRule, ...]:
        """Each direction is dropped: from port to port, and what the router brings."""
        one, ends = self.nodes[:1], self.peers(places)
        return tuple(
            SwitchRule(f"outport == {ports(places, to)} && {sent_by(places, of)}")
            for of, to in ((one, ends), (ends, one))
        )
