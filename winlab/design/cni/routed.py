"""What ``l3`` and ``host-gw`` share: reference plug-ins, and pod addresses that are visible on the wire. Pure."""

from __future__ import annotations

from winlab.design.catalog import distributions
from winlab.design.catalog.artifact import Program
from winlab.design.cni import plugins
from winlab.design.cni.model import HnsNetwork, NodeNetwork, PodNetwork, ProxyNetwork, Support, Versions
from winlab.design.cni.profile import Profile


class Routed(Profile):
    """Pods behind a bridge (Linux) or an HNS l2bridge network (Windows); something must carry the routes."""

    pods = "bridge / win-bridge"

    def programs(self, versions: Versions) -> list[Program]:
        """The reference plug-ins, with win-bridge."""
        return plugins.programs(versions, "win-bridge")

    def linux_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:
        """The conflist with the node's pod CIDR."""
        return {plugins.FILE: plugins.linux(node, self.pod_mtu(network, "linux"))}

    def windows_files(self, network: PodNetwork, node: NodeNetwork) -> dict[str, str]:
        """The conflist with the node's pod CIDR."""
        return {plugins.FILE: plugins.windows(network, node, "win-bridge", self.exceptions(network))}

    def hns_network(self, network: PodNetwork, node: NodeNetwork) -> HnsNetwork | None:  # noqa: ARG002
        """An l2bridge; win-bridge gives pods the second address as gateway, which is the node's own endpoint in it."""
        return {
            "type": "L2Bridge",
            "name": plugins.NETWORK,
            "subnet": str(node.pods),
            "gateway": str(node.pods[1]),
            "endpoint": {"name": f"{plugins.NETWORK}_ep", "address": str(node.pods[2])},
            "node_address": node.address,
        }

    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:  # noqa: ARG002
        """winlab's l2bridge, on which kube-proxy uses the node's own address as source."""
        return ProxyNetwork(plugins.NETWORK)

    def exceptions(self, network: PodNetwork) -> tuple[str, ...]:
        """Pods, services, and the lab's nodes, which all know the way back."""
        return (network.pod_cidr, network.service_cidr, network.lab_cidr)

    def windows_support(self, release: str) -> Support:
        """win-bridge is documented for Kubernetes, but no project tests it in a cluster any more."""
        return Support(
            "experimental",
            f"win-bridge is kept up with the reference plug-ins, but no one publishes tests of it on Windows Server "
            f"{release} in a {distributions.DEFAULT} cluster.",
        )
