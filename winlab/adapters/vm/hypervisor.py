"""A hypervisor, and all of a site's: which machines they have, and where a node is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from winlab.adapters.left import Left
from winlab.adapters.remote import Remote
from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection, answering
from winlab.adapters.vm.domains import Machine, Named
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.facts import MachineFacts
from winlab.errors import HostError, WinlabError

UNKNOWN = "It is not known which other hypervisors the site has"
CURE = "Run the command again when it answers; 'winlab hypervisor list' shows all."


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
    :param left: what labs left here while it did not answer: it counts as theirs no longer.
    """

    name: str
    conn: Connection
    open_pool: Callable[[], StoragePool]
    read_facts: Callable[[], MachineFacts]
    left: tuple[Left, ...] = ()

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

    @property
    @answering()
    def remote(self) -> Remote | None:
        """Its host, for ssh; None: it is this one."""
        return Remote.of(self.conn.getURI())

    def machines(self, lab: str | None = None) -> list[Machine]:
        """Its machines, of one lab or of all, sorted: see :func:`winlab.adapters.vm.domains.machines`."""
        found = [one for one in domains.machines(self.conn, lab) if not any(left.has(one.tag) for left in self.left)]
        return [replace(one, hypervisor=self.name) for one in found]


@dataclass(frozen=True)
class Silent:
    """A hypervisor that does not answer, and why. Without a name: all but the first, which are not known."""

    name: str
    error: WinlabError

    def __str__(self) -> str:
        """What to report: a sentence, and the reason."""
        return f"{self._what}: {self.reason}"

    @property
    def _what(self) -> str:
        return f"The hypervisor '{self.name}' does not answer" if self.name else UNKNOWN

    @property
    def reason(self) -> str:
        """Why it does not answer, in one line."""
        why = f" ({self.error.why})" if self.error.why else ""
        return f"{self.error.what.removesuffix('.')}{why}."

    def is_maybe(self, name: str) -> bool:
        """Whether a hypervisor of this name is, or may be, this one."""
        return self.name in (name, "")

    def refusal(self, what: str) -> HostError:
        """The error of a command that needs it; *what* it needs it for, as the end of a sentence."""
        return HostError(f"{self._what}, {what}.", why=self.reason, cure=self.error.cure or CURE, causes=[self.error])


@dataclass(frozen=True)
class Hypervisors:
    """The hypervisors of a site, while they are connected, the first one first; and those that do not answer."""

    each: tuple[Hypervisor, ...]
    silent: tuple[Silent, ...] = ()

    def __iter__(self) -> Iterator[Hypervisor]:
        return iter(self.each)

    def on(self, node: Placed) -> Hypervisor:
        """The hypervisor that a node is on.

        :raises HostError: it does not answer, or the site has no hypervisor of this name.
        """
        for one in self.each:
            if one.name == node.hypervisor:
                return one
        for other in self.silent:
            if other.is_maybe(node.hypervisor):
                raise other.refusal(f"and '{node.domain}' is on '{node.hypervisor}'")
        raise HostError(
            f"This site has no hypervisor '{node.hypervisor}'.",
            why=f"It has: {', '.join(one.name for one in self.each)}.",
            cure="If it was forgotten, 'winlab repair' makes the node on another one. If it was only removed, add it "
            "again. Otherwise run the command at the site that the lab was made at.",
        )

    def machines(self, lab: str | None = None) -> list[Machine]:
        """The machines of one lab or of all, on any of them that answers, sorted."""
        found = [machine for one in self.each for machine in one.machines(lab)]
        return sorted(found, key=domains.order)
