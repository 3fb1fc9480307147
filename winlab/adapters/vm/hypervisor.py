"""A hypervisor, and all of a site's: which machines they have, and where a node is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Machine, Named
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.facts import MachineFacts
from winlab.errors import HostError


class Placed(Named, Protocol):
    """A machine that is on a hypervisor: a node of a plan, or a machine that was found."""

    @property
    def hypervisor(self) -> str:
        """The hypervisor's name."""


@dataclass(frozen=True)
class Hypervisor:
    """What one hypervisor gives to labs. Its pool and its facts are looked up when they are first needed.

    :param open_pool: opens its storage pool; raises HostError if it has none.
    :param read_facts: reads its facts; raises UsageError if they can't be read.
    """

    name: str
    conn: Connection
    open_pool: Callable[[], StoragePool]
    read_facts: Callable[[], MachineFacts]

    @cached_property
    def pool(self) -> StoragePool:
        """Its storage pool.

        :raises HostError: it has none.
        """
        return self.open_pool()

    @cached_property
    def facts(self) -> MachineFacts:
        """What is known of this machine.

        :raises UsageError: it can't be read.
        """
        return self.read_facts()

    def machines(self, lab: str | None = None) -> list[Machine]:
        """Its machines, of one lab or of all, sorted: see :func:`winlab.adapters.vm.domains.machines`."""
        return [replace(one, hypervisor=self.name) for one in domains.machines(self.conn, lab)]


@dataclass(frozen=True)
class Hypervisors:
    """The hypervisors of a site, while they are connected."""

    each: tuple[Hypervisor, ...]

    def __iter__(self) -> Iterator[Hypervisor]:
        return iter(self.each)

    def on(self, node: Placed) -> Hypervisor:
        """The hypervisor that a node is on.

        :raises HostError: the site has no hypervisor of this name.
        """
        for one in self.each:
            if one.name == node.hypervisor:
                return one
        raise HostError(
            f"This site has no hypervisor '{node.hypervisor}'.",
            why=f"It has: {', '.join(one.name for one in self.each)}.",
            cure="Run the command at the site that the lab was made at.",
        )

    def machines(self, lab: str | None = None) -> list[Machine]:
        """The machines of one lab or of all, on any of them, sorted."""
        found = [machine for one in self.each for machine in one.machines(lab)]
        return sorted(found, key=domains.order)
