"""How a lab and the external cluster that its workers join reach each other: the plan's part. Pure.

``nat``: the lab's router translates what leaves the lab. ``routed``: it does not, towards the cluster's networks, so
that nodes and pods are known there by their own addresses. ``attached``: the lab's switch is joined to the network that
the cluster's nodes are in, on this host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from winlab.design.plan import addresses
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.network_plan import AttachmentPlan
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.design.plan.existing import ForeignCluster, LocalBridge
    from winlab.design.plan.node_plan import NodePlan
    from winlab.design.spec.model import Spec

PREFIXES = range(16, 26)  # of networks that workers can be attached to, as of network.cidr


@dataclass(frozen=True)
class Places:
    """Where a lab's inner addresses are: its network, and the part of it that the lab takes addresses from."""

    cidr: str
    window: ipaddress.IPv4Network
    attached: bool

    @property
    def gateway(self) -> str:
        """The router's inner address: the first one, or the last one in a network with others' machines in it."""
        return str(self.window[-2 if self.attached else 1])

    def inner(self, offset: int) -> str:
        """The address *offset* places into that part.

        :raises UsageError: there is none.
        """
        if self.attached and offset > self.window.num_addresses - 3:
            raise UsageError(
                f"The network {self.cidr} is too small for that many attached nodes.",
                why=f"The lab takes addresses from {self.window}, and pools have fixed places there.",
                cure="Use fewer nodes or pools, or make the cluster's network larger.",
            )
        return str(self.window[offset])


def places(spec: Spec, lab: str, foreign: ForeignCluster | None) -> Places:
    """Where the lab's inner addresses are.

    :raises UsageError: the spec asks for an attachment that is not possible.
    """
    mode = spec.network.attachment
    if spec.network.routed and mode != "routed":
        raise UsageError(
            f"network.routed counts only with network.attachment routed, and it is '{mode}'.",
            cure="Add --set network.attachment=routed, or leave network.routed out.",
        )
    if mode == "nat":
        return Places(spec.network.cidr, ipaddress.IPv4Network(spec.network.cidr), attached=False)
    if foreign is None:
        raise UsageError(
            f"network.attachment can't be '{mode}' here.",
            why="It is how a lab and an external cluster reach each other, and this lab joins none.",
            cure="Leave it out, or join one with 'winlab join'.",
        )
    if mode == "routed":
        return Places(spec.network.cidr, ipaddress.IPv4Network(spec.network.cidr), attached=False)
    if foreign.bridge is None:
        raise UsageError(
            "The workers can't be attached to the cluster's network.",
            why="No bridge of this host is in the network of its nodes: "
            f"{', '.join(foreign.addresses) or 'they have no IPv4 addresses'}.",
            cure="Attachment is for clusters in containers or machines of this host, as of kind, k3d and minikube. For "
            "others take --attachment routed.",
        )
    return on_bridge(foreign.bridge, lab)


def on_bridge(bridge: LocalBridge, lab: str) -> Places:
    """Where the inner addresses of a lab are that is attached to a bridge.

    :raises UsageError: the bridge's network is too small or too large.
    """
    network = ipaddress.IPv4Network(bridge.cidr)
    if network.prefixlen not in PREFIXES:
        raise UsageError(
            f"The workers can't be attached to '{bridge.name}': its network is {network}.",
            cure=f"Make the cluster's network one of /{PREFIXES[0]} to /{PREFIXES[-1]}.",
        )
    return Places(str(network), addresses.window(str(network), lab), attached=True)


def decide(spec: Spec, foreign: ForeignCluster | None, nodes: Iterable[NodePlan]) -> AttachmentPlan | None:
    """The attachment of a lab with these nodes; None if its router translates everything.

    :raises UsageError: an attached node would be on another host than the bridge.
    """
    mode = spec.network.attachment
    if mode == "nat" or foreign is None:
        return None
    pods = foreign.pod_cidr
    if mode == "routed":
        networks = spec.network.routed or (*(f"{one}/32" for one in foreign.addresses), pods)
        return AttachmentPlan(networks=tuple(dict.fromkeys(networks)))
    assert foreign.bridge is not None, "places() refuses that"
    if elsewhere := [node.name for node in nodes if node.hypervisor != HYPERVISOR]:
        raise UsageError(
            f"These nodes can't be attached to '{foreign.bridge.name}': {', '.join(elsewhere)}.",
            why=f"That bridge is on '{HYPERVISOR}', and they would be on other hypervisors.",
            cure="Keep them there with --set hypervisors=1.",
        )
    return AttachmentPlan(networks=(foreign.bridge.cidr, pods), bridge=foreign.bridge.name, host=foreign.bridge.address)
