"""A power cut."""

from __future__ import annotations

from winlab.design.fault.base import MachineFault


class Kill(MachineFault):
    """The machine is off at once: its guest had no chance to shut down. Clearing this starts it."""

    kind = "kill"
    about = "Cut a node's power: its QEMU process ends at once. Clearing the fault starts the node."
    state = "off"

    def effect(self) -> str:
        """What it does, for display."""
        return "its power is cut"
