"""``calico-vxlan`` and ``calico-bgp``: Calico by its operator, HostProcess pods on Windows. Pure.

Facts: Calico's own CI with Windows (projectcalico/calico, process/testing/aso), and what the operator refuses
(tigera/operator, pkg/controller/installation/validation.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.cni.calico import existing
from winlab.design.cni.model import (
    WINDOWS_PORT,
    WINDOWS_VNI,
    AllObjects,
    Answer,
    Endpoint,
    NodeNetwork,
    Object,
    Patch,
    PodNetwork,
    ProxyNetwork,
    Question,
    Recognized,
    Support,
    Unreadable,
    Versions,
    has_hns,
)
from winlab.design.cni.profile import Profile
from winlab.design.problem import Problem

REGISTRY = "quay.io/calico"
OPERATOR_IMAGE = "quay.io/tigera/operator"
LINUX_IMAGES = ("node", "cni", "typha", "kube-controllers")
WINDOWS_IMAGES = ("node-windows", "cni-windows")
OPERATOR_NAMESPACE = "tigera-operator"  # made by tigera-operator.yaml
HNS_NETWORK = "Calico"  # with any encapsulation
POOLS, FELIX, IPAM = (
    AllObjects(f"{kind}.crd.projectcalico.org") for kind in ("ippools", "felixconfigurations", "ipamconfigs")
)
BLOCK_PREFIX = 26  # Calico's block size; with strictAffinity a block belongs to one node


class Calico(Profile):
    """What both Calico profiles have in common."""

    bgp: Literal["Enabled", "Disabled"]
    pool: Literal["VXLAN", "None"]
    no_rehearsal = (
        "Calico comes as container images alone, which no source can build here, "
        "and its Windows half needs a real HNS and HostProcess containers."
    )

    proxy_mode = "iptables"  # Calico writes iptables rules, and kube-proxy's must coexist with them
    windows_daemon_sets = (existing.DAEMON_SET,)
    daemon_sets = ("calico-node", *windows_daemon_sets)
    pins = Path(__file__).with_name("pins.yaml")

    def programs(self, versions: Versions) -> list[Program]:  # noqa: ARG002
        """None: Calico's own containers include the plug-ins."""
        return []

    def published(self, versions: Versions) -> list[Manifest]:
        """One set of CRDs, then the operator. The set must be the one whose ``ipamconfigs`` :meth:`patches` changes."""
        names = ("v1_crd_projectcalico_org.yaml", "tigera-operator.yaml")
        return [Manifest("calico", versions["calico"], name) for name in names]

    def images(self, versions: Versions) -> list[ContainerImage]:
        """The operator, and what it runs for :meth:`manifests`."""
        return [
            ContainerImage(f"{OPERATOR_IMAGE}:{versions['tigera_operator']}", "linux"),
            *(ContainerImage(f"{REGISTRY}/{name}:{versions['calico']}", "linux") for name in LINUX_IMAGES),
            *(ContainerImage(f"{REGISTRY}/{name}:{versions['calico']}", "windows") for name in WINDOWS_IMAGES),
        ]

    def manifests(
        self,
        network: PodNetwork,
        nodes: Sequence[NodeNetwork],
        endpoint: Endpoint,
        versions: Versions,  # noqa: ARG002
    ) -> list[Object]:
        """The API server's address, which the operator requires for Windows, and then the Installation."""
        return [_endpoint(endpoint), self._installation(network, nodes)]

    def _installation(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> Object:
        calico: Object = {
            "bgp": self.bgp,
            "linuxDataplane": "Iptables",
            "mtu": self.pod_mtu(network, "linux"),
            "ipPools": [
                {
                    "cidr": network.pod_cidr,
                    "blockSize": BLOCK_PREFIX,
                    # not Calico's usual VXLANCrossSubnet: with it the Windows half never appears, without an error
                    "encapsulation": self.pool,
                    "natOutgoing": "Enabled",
                    "nodeSelector": "all()",
                }
            ],
        }
        spec: Object = {
            "variant": "Calico",
            "cni": {"type": "Calico", "ipam": {"type": "Calico"}},
            "serviceCIDRs": [network.service_cidr],
            "calicoNetwork": calico,
            # the parts for layer 7 policies: labs don't need them, and each is another image to carry
            "flexVolumePath": "None",
            "kubeletVolumePluginPath": "None",
        }
        if has_hns(nodes):
            calico["windowsDataplane"] = "HNS"
            # must be containerd's own folders; the operator refuses this part without windowsDataplane
            spec["windowsNodes"] = {
                "cniBinDir": "/opt/cni/bin",
                "cniConfigDir": "/etc/cni/net.d",
                "cniLogDir": "/var/log/calico/cni",
            }
        return {
            "apiVersion": "operator.tigera.io/v1",
            "kind": "Installation",
            "metadata": {"name": "default"},
            "spec": spec,
        }

    def patches(self, nodes: Sequence[NodeNetwork]) -> list[Patch]:
        """Windows nodes can't share a block of addresses; the operator waits for this setting before it continues."""
        if not has_hns(nodes):
            return []
        return [Patch("ipamconfigs.crd.projectcalico.org", "default", {"spec": {"strictAffinity": True}})]

    def questions(self, daemon_sets: Mapping[str, str]) -> Sequence[Question]:
        """The IP pools and Felix's settings, which say how packets travel, and how addresses are given out."""
        return (POOLS, FELIX, IPAM) if "calico-node" in daemon_sets else ()

    def recognize(self, daemon_sets: Mapping[str, str], answers: Mapping[Question, Answer]) -> Recognized | None:
        """Recognized by its DaemonSet, and by what the IP pools in use have in common."""
        if "calico-node" not in daemon_sets:
            return None
        pools = answers[POOLS]
        if isinstance(pools, Unreadable):
            return Recognized(None, f"Calico, whose IP pools can't be read ({pools.why})")
        assert isinstance(pools, list), "the answer to AllObjects"
        specs = [row.get("spec", {}) for row in pools if not row.get("spec", {}).get("disabled")]
        if not specs:
            return Recognized(None, "Calico without an IP pool")
        if any(str(spec.get("ipipMode", "Never")) != "Never" for spec in specs):
            return Recognized(None, "Calico with IP-in-IP, which Windows does not have")
        modes = {str(spec.get("vxlanMode", "Never")) for spec in specs}
        lacks = existing.lacks(daemon_sets, answers[IPAM])
        if modes == {"Always"}:
            if other := existing.other_vxlan(answers[FELIX]):
                return Recognized(None, f"Calico with VXLAN, {other}")
            return Recognized(CalicoVxlan.name, "Calico with VXLAN", lacks)
        if modes == {"Never"}:
            return Recognized(CalicoBgp.name, "Calico with BGP", lacks)
        return Recognized(
            None, f"Calico with the VXLAN modes {', '.join(sorted(modes))}; Windows needs Always, or BGP alone"
        )

    def windows_support(self, release: str) -> Support:
        """Calico 3.32 has images for 2019 and 2022 (metadata.mk); 2025 is requested in calico#11691."""
        if release == "2022":
            return Support("supported", "Calico and Kubernetes test it; take build 20348.2762 or later (KB5044281).")
        if release == "2019":
            return Support("experimental", "Calico still supports it, Kubernetes' documents no longer name it.")
        if self.bgp == "Enabled":
            return Support("refused", "Calico does not name Windows Server 2025, and no one is known to run BGP on it.")
        return Support("experimental", "Calico does not name it (calico#11691), though Kubernetes' CI runs it daily.")


class CalicoVxlan(Calico):
    """Pods' packets travel in VXLAN; pod addresses are not visible outside the nodes."""

    name = "calico-vxlan"
    pods = "Calico / Calico, HNS overlay"
    carrier = "Calico, in VXLAN"
    encapsulation = "vxlan"
    vni = WINDOWS_VNI
    port = WINDOWS_PORT
    bgp = "Disabled"
    pool = "VXLAN"

    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:  # noqa: ARG002
        """Calico's overlay; the source address is that of the endpoint that Calico makes for the node."""
        return ProxyNetwork(HNS_NETWORK, source_endpoint="Calico_ep")

    def own_problems(self, network: PodNetwork, nodes: Sequence[NodeNetwork]) -> list[Problem]:  # noqa: ARG002
        """Both halves use Felix's own VNI, which an Installation can't change."""
        if network.vni == WINDOWS_VNI:
            return []
        return [Problem(f"Calico uses the VNI {WINDOWS_VNI}, not {network.vni}.", f"Use the VNI {WINDOWS_VNI}.")]


class CalicoBgp(Calico):
    """Pods' packets are not encapsulated; nodes exchange routes by BGP. All nodes are on one switch."""

    name = "calico-bgp"
    pods = "Calico / Calico, HNS l2bridge"
    carrier = "Calico, by BGP"
    bgp = "Enabled"
    pool = "None"

    def proxy_network(self, network: PodNetwork, node: NodeNetwork) -> ProxyNetwork:  # noqa: ARG002
        """Calico's l2bridge, on which kube-proxy uses the node's own address as source."""
        return ProxyNetwork(HNS_NETWORK)

    def windows_features(self) -> tuple[str, ...]:
        """Routing and Remote Access is Windows' BGP router."""
        return ("Containers", "RemoteAccess", "RSAT-RemoteAccess-PowerShell", "Routing")


def _endpoint(endpoint: Endpoint) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kubernetes-services-endpoint", "namespace": OPERATOR_NAMESPACE},
        "data": {"KUBERNETES_SERVICE_HOST": endpoint.host, "KUBERNETES_SERVICE_PORT": str(endpoint.port)},
    }


PROFILES = (CalicoVxlan(), CalicoBgp())
