"""``host-gw``: each node carries the routes to the other nodes' pods. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab.design.cni.model import Masquerade, NodeNetwork, PodNetwork, Route
from winlab.design.cni.routed import Routed


class HostGateway(Routed):
    """Every node is the gateway of its pods for its neighbours; all are on one switch, and the router knows nothing."""

    name = "host-gw"
    carrier = "each node"
    pins = Path(__file__).with_name("pins.yaml")

    def routes(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> dict[str, list[Route]]:  # noqa: ARG002
        """The pods of all others by the others' addresses."""
        return {
            node.name: sorted(Route(str(other.pods), other.address) for other in nodes if other.name != node.name)
            for node in nodes
        }

    def masquerade(self, network: PodNetwork) -> Masquerade | None:
        """The router has no route to pods, so that what goes out must carry the node's address."""
        return Masquerade(network.pod_cidr, self.exceptions(network))


PROFILES = (HostGateway(),)
