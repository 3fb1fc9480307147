"""``host-gw``: each node carries the routes to the other nodes' pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab.design.cni.model import Masquerade, NodeNetwork, PodNetwork, Route
from winlab.design.cni.routed import Routed


class HostGateway(Routed):
    """Every node is its pods' gateway for the other nodes. All are on one switch; the router has no pod routes."""

    name = "host-gw"
    carrier = "each node"
    pins = Path(__file__).with_name("pins.yaml")

    def routes(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> dict[str, list[Route]]:  # noqa: ARG002
        """A route to each other node's pods, by that node's address."""
        return {
            node.name: sorted(Route(str(other.pods), other.address) for other in nodes if other.name != node.name)
            for node in nodes
        }

    def masquerade(self, network: PodNetwork) -> Masquerade | None:
        """The router has no route to pods, so outgoing packets must carry the node's address."""
        return Masquerade(network.pod_cidr, self.exceptions(network))


PROFILES = (HostGateway(),)
