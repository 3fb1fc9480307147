"""A frozen machine."""

from __future__ import annotations

from winlab.design.fault.base import MachineFault


class Freeze(MachineFault):
    """The machine's CPUs stand still: it answers nothing, and its connections stay open."""

    kind = "freeze"
    about = "Freeze a node: its CPUs stand still, its connections stay open. Clear the fault to let it run again."
    state = "suspended"

    def effect(self) -> str:
        """What it does, for display."""
        return "it is frozen"
