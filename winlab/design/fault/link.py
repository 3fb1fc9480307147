"""Packets that are lost or late: what the Linux end of each pair of nodes does to them. Pure.

Windows has nothing of that kind, and the host's own queues need root and a kernel module that it may lack. So a pair
needs a Linux node, which does it for both. The packets are known by the other node's MAC, or, where the lab's router is
between them, by its addresses and the networks of its pods.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from winlab.design.contract.on_both import Faults, LinkFault
from winlab.design.fault.base import InnerFault, Place, Places
from winlab.errors import UsageError


class PacketFault(InnerFault):
    """A fault of the packets between two nodes, or between one and all others."""

    pairs = True

    def check(self, places: Places) -> None:
        """At least one end of each pair runs Linux, or nothing can be done.

        :raises UsageError: none does.
        """
        self.need_peers(places)
        if not self.inside(places):
            names = " and ".join(f"'{name}'" for name in (self.nodes[0], *self.peers(places)))
            raise UsageError(
                f"No packets between {names} can be lost or late.",
                why="A Linux node does that, and none of them runs Linux.",
                cure="'winlab fault add partition' and 'bandwidth' work between nodes of any system.",
            )

    def inside(self, places: Places) -> tuple[str, ...]:
        """The first node if it can; otherwise those of its peers that can."""
        can = [name for name in (self.nodes[0], *self.peers(places)) if places[name].system.packet_faults]
        return (self.nodes[0],) if self.nodes[0] in can else tuple(can)

    @abstractmethod
    def link(self, place: Place) -> LinkFault:
        """The fault of the packets to and from a node."""

    def done_by(self, node: str, places: Places, call: Faults) -> Faults:
        """The call with this node's links."""
        ends = self.peers(places) if node == self.nodes[0] else self.nodes[:1]
        links = {link.mac: link for link in call.links or []}
        for end in ends:
            own = self.link(places[end])
            links[own.mac] = _worse(links[own.mac], own) if own.mac in links else own
        return replace(call, links=[links[mac] for mac in sorted(links)])


def _worse(one: LinkFault, other: LinkFault) -> LinkFault:
    """Two faults of one link: of each number the larger one."""
    return replace(
        one,
        loss=max(one.loss, other.loss),
        delay=max(one.delay, other.delay),
        jitter=max(one.jitter, other.jitter),
    )
