"""kube-proxy on Windows: a native service, with its command line and configuration. Pure.

On Linux it is the distribution's: winlab/design/distribution.
"""

from __future__ import annotations

import yaml

from winlab.design.catalog.versions import Versions
from winlab.design.distribution.kubelet import service_command

LOG = "C:/var/log/kube-proxy/kube-proxy.log"
CONFIG = "C:/var/lib/kube-proxy/config.yaml"
KUBECONFIG = "C:/var/lib/kube-proxy/kubeconfig"
GATES_UNTIL = 33  # WinDSR and WinOverlay are locked since 1.34, and an unknown gate is fatal once they are removed


def arguments() -> tuple[str, ...]:
    """The flags of kube-proxy.exe as a service; everything else is in the configuration."""
    return ("--windows-service", "--v=2", f"--config={CONFIG}")


def command(versions: Versions) -> str:
    """The command line of the Windows service ``kube-proxy`` (its binPath)."""
    return service_command(versions, LOG, r"C:\k\kube-proxy.exe", arguments())


def config(
    versions: Versions, *, node: str, address: str, pod_cidr: str, network: str, source_vip: str | None = None
) -> str:
    """The KubeProxyConfiguration of the Windows node *node*.

    :param address: the node's own address.
    :param network: the HNS network that the CNI profile uses.
    :param source_vip: for an overlay: the node's address in it, the source of traffic to services.
    """
    winkernel: dict[str, object] = {"networkName": network, "enableDSR": True}
    if source_vip is not None:
        winkernel["sourceVip"] = source_vip
    row: dict[str, object] = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "kernelspace",
        "hostnameOverride": node,
        "bindAddress": address,
        "clusterCIDR": pod_cidr,
        "clientConnection": {"kubeconfig": KUBECONFIG},
        "winkernel": winkernel,
    }
    if versions.minor <= GATES_UNTIL:
        row["featureGates"] = {"WinDSR": True, "WinOverlay": True}
    return yaml.safe_dump(row, sort_keys=False)
