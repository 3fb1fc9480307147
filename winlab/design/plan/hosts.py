"""The hypervisors of a site as they are now, as values: placement decides by them. Pure.

:mod:`winlab.adapters.vm.resources` reads them.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from winlab.design.plan.facts import MachineFacts


class HostStock(BaseModel):
    """What one hypervisor has.

    ``free_mib`` is the memory that it could give to guests now: free, buffers and caches. ``promised_mib`` and
    ``promised_cpus`` are what all of its domains may take, those included that are off. ``pool_free`` is in bytes.
    ``bases`` are the names of the complete base volumes in its pool. ``nodes`` are those of the planned lab that have a
    machine or a volume there. ``drained``: it takes no new nodes. ``trouble`` says why it does not answer; the other
    values are then unknown.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    facts: MachineFacts = MachineFacts()
    memory_mib: int = 0
    free_mib: int = 0
    promised_mib: int = 0
    cores: int = 0
    promised_cpus: int = 0
    pool_free: int = 0
    bases: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    drained: bool = False
    trouble: str = ""

    @property
    def left_mib(self) -> int:
        """The memory that no one uses and no domain is promised."""
        return min(self.free_mib, self.memory_mib - self.promised_mib)

    @property
    def said(self) -> str:
        """What it has, for a message."""
        if self.trouble:
            return f"{self.name}: does not answer: {self.trouble.removesuffix('.')}"
        drained = "drained, takes no new nodes; " if self.drained else ""
        return (
            f"{self.name}: {drained}{gib(self.free_mib)} of {gib(self.memory_mib)} GiB of memory free, "
            f"{gib(self.promised_mib)} GiB promised to machines; {self.cores} cores, {self.promised_cpus} CPUs "
            f"promised; {self.pool_free >> 30} GiB free in its pool"
        )


def gib(mib: int) -> str:
    """MiB as GiB with one digit: 20582 → ``20.1``. Below nothing is nothing."""
    return f"{max(0, mib) / 1024:.1f}"
