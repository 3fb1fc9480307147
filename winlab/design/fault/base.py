"""What all faults have in common, and the three ways in which they are done. Pure.

A fault is a value: its kind, the nodes that it is done to, its settings. Its identifier follows from kind and nodes,
so the same fault with other settings replaces the first one. A fault is recorded on what it changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

from winlab.design.contract.on_both import Faults
from winlab.design.system import System
from winlab.errors import UsageError


@dataclass(frozen=True)
class Place:
    """A node of the lab, as far as faults need to know it.

    :param port: its logical switch port in OVN.
    :param floating: its external address.
    :param pods: the networks of its pods that the lab's router knows; none with a CNI plug-in that hides them.
    """

    node: str
    system: System
    mac: str
    port: str
    address: str
    floating: str
    pods: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """What packets from it have as their source, as addresses and networks, when they come from the router."""
        return (self.address, self.floating, *self.pods)


UNFINISHED = "unfinished"  # in a record
Places = Mapping[str, Place]  # of all nodes of a lab, by name


class Fault(BaseModel):
    """An injected fault. Each subclass is a kind; its fields besides ``nodes`` are its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    about: ClassVar[str]  # what the command's help says
    pairs: ClassVar[bool] = False  # whether it can be between two nodes

    nodes: tuple[str, ...]  # one; or two, sorted
    _unfinished: bool = PrivateAttr(False)

    @property
    def unfinished(self) -> bool:
        """Whether it was begun and may not be done: a connection was lost, or winlab was killed."""
        return self._unfinished

    def begun(self) -> Self:
        """The same fault, unfinished."""
        made = self.model_copy()
        made._unfinished = True
        return made

    @property
    def label(self) -> str:
        """Its identifier for display, with a word if it is unfinished."""
        return f"{self.id} (unfinished)" if self.unfinished else self.id

    @property
    def id(self) -> str:
        """``loss.node-1``; no node's name has a dot."""
        return ".".join((self.kind, *self.nodes))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return self.model_dump(exclude={"nodes"})

    @abstractmethod
    def effect(self) -> str:
        """What it does, for display."""

    def check(self, places: Places) -> None:
        """Check that it can be done to these nodes, which exist.

        :raises UsageError: it can't; the message says why.
        """

    def record(self) -> dict[str, Any]:
        """What is recorded of it; :func:`winlab.design.fault.read` reads it."""
        mark = {UNFINISHED: True} if self.unfinished else {}
        return {"kind": self.kind, "nodes": list(self.nodes), **self.settings, **mark}

    def peers(self, places: Places) -> tuple[str, ...]:
        """The nodes at the other end: that of a pair, else all others of the lab."""
        return self.nodes[1:] or tuple(name for name in places if name != self.nodes[0])

    def need_peers(self, places: Places) -> None:
        """Refuse a fault between nodes in a lab that has only one.

        :raises UsageError: there is no other node.
        """
        if not self.peers(places):
            raise UsageError(f"'{self.nodes[0]}' is the lab's only node.", why=f"A {self.kind} is between nodes.")


@dataclass(frozen=True)
class SwitchRule:
    """A rule of the lab's logical switch for packets on their way out of it, to a port: ovn-nb(5), ACL and QoS.

    :param match: which packets, in OVN's language.
    :param direction: ``from-lport`` is on the way in, where the port of the destination is not known yet.
    :param kbit: kilobits in a second that pass; 0: all packets are dropped.
    :param priority: of several limits the one with the highest priority counts, in each direction.
    """

    match: str
    direction: Literal["from-lport", "to-lport"] = "to-lport"
    kbit: int = 0
    priority: int = 1000


class SwitchFault(Fault):
    """Done by OVN, for every system alike. Recorded on the rows."""

    @abstractmethod
    def rules(self, places: Places) -> tuple[SwitchRule, ...]:
        """The rules that do it."""


class MachineFault(Fault):
    """Done by libvirt. Recorded in the domain's metadata, and over as soon as the machine is in another state."""

    state: ClassVar[Literal["off", "suspended"]]


class InnerFault(Fault):
    """Done by a script inside nodes. Recorded in the metadata of each one's domain."""

    def inside(self, places: Places) -> tuple[str, ...]:
        """The nodes in which it is done."""
        del places
        return self.nodes

    @abstractmethod
    def done_by(self, node: str, places: Places, call: Faults) -> Faults:
        """A node's script call, with this fault."""


def ports(places: Places, names: tuple[str, ...]) -> str:
    """The ports of nodes as a set in OVN's language. Ports can't be compared with ``!=``: that matches nothing."""
    return "{" + ", ".join(f'"{places[name].port}"' for name in names) + "}"


def sent_by(places: Places, names: tuple[str, ...]) -> str:
    """Packets that nodes sent: from their ports, or brought by the router."""
    sources = ", ".join(source for name in names for source in places[name].sources)
    return f"(inport == {ports(places, names)} || ip4.src == {{{sources}}})"
