"""``l3``: the lab's own router carries the routes to the pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab.design.cni.model import NodeNetwork, PodNetwork, Route
from winlab.design.cni.routed import Routed


class L3(Routed):
    """Nodes have only their default route; the router is the top of the rack."""

    name = "l3"
    carrier = "the lab's OVN router"
    pins = Path(__file__).with_name("pins.yaml")

    def router_routes(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> list[Route]:  # noqa: ARG002
        """A route to each node's pods, by the node's address."""
        return sorted(Route(str(node.pods), node.address) for node in nodes)

    def router_snat(self, network: PodNetwork) -> tuple[str, ...]:
        """The pod network: Linux pods leave with their own addresses (Windows translates its own)."""
        return (network.pod_cidr,)


PROFILES = (L3(),)
