"""Configurations of the reference plug-ins (containernetworking/plugins v1.9.1), for both systems. Pure.

Field names: plugins/main/bridge/bridge.go, plugins/ipam/host-local/backend/allocator/config.go, plugins/meta/portmap,
pkg/hns/netconf_windows.go and plugins/main/windows/{win-bridge,win-overlay}; policies: hcn/hcnpolicy.go of
Microsoft/hcsshim. With ``apiVersion`` 2 (HCN, which containerd needs) a policy is ``{"Type": ..., "Settings": {...}}``;
the plug-in silently drops a policy in the older form.
"""

from __future__ import annotations

import json
from typing import Any

from winlab.design.catalog.artifact import Program
from winlab.design.cni.model import NodeNetwork, PodNetwork, Versions

NETWORK = "winlab"  # the name of the CNI network, and of the HNS network that win-bridge looks for
FILE = "10-winlab.conflist"
CNI_VERSION = "1.0.0"
BRIDGE = "cni0"
LINUX_PLUGINS = ("bridge", "host-local", "loopback", "portmap")


def programs(versions: Versions, windows: str) -> list[Program]:
    """The plug-ins of both systems; *windows* is the one that connects pods there."""
    own = [Program(name, versions["cni_plugins"], "windows") for name in (windows, "host-local")]
    return [*linux_programs(versions), *own]


def linux_programs(versions: Versions) -> list[Program]:
    """The plug-ins of Linux nodes."""
    return [Program(name, versions["cni_plugins"], "linux") for name in LINUX_PLUGINS]


def linux(node: NodeNetwork, mtu: int) -> str:
    """bridge, host-local and portmap for a Linux node's pods.

    ``ipMasq`` stays off: the plug-in would translate everything that leaves the node's own pod CIDR, and pods of
    other nodes would see the node's address.

    :raises WinlabError: the node has no pod CIDR yet.
    """
    return _conflist(
        {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "mtu": mtu,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": str(node.pods)}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    )


def windows(
    network: PodNetwork, node: NodeNetwork, plugin: str, exceptions: tuple[str, ...], hns_network: str = NETWORK
) -> str:
    """win-bridge or win-overlay with host-local for a Windows node's pods.

    :raises WinlabError: the node has no pod CIDR yet.
    """
    routed = [network.service_cidr]
    if plugin == "win-bridge":
        routed.append(f"{node.address}/32")  # otherwise a pod can't reach its own node
    return _conflist(
        {
            "type": plugin,
            "apiVersion": 2,
            "capabilities": {"portMappings": True, "dns": True},
            "dns": {
                "nameservers": [network.cluster_dns],
                "search": [f"svc.{network.cluster_domain}"],
            },
            "ipam": {
                "type": "host-local",
                # the second address is the pods' gateway (l2bridge) or kube-proxy's source address (overlay)
                "ranges": [[{"subnet": str(node.pods), "rangeStart": str(node.pods[3])}]],
            },
            "loopbackDSR": True,
            "policies": [
                _policy("OutBoundNAT", {"Exceptions": list(exceptions)}),
                *(_policy("SDNRoute", {"DestinationPrefix": cidr, "NeedEncap": True}) for cidr in routed),
            ],
        },
        name=hns_network,
    )


def _policy(kind: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {"name": "EndpointPolicy", "value": {"Type": kind, "Settings": settings}}


def _conflist(*plugins: dict[str, Any], name: str = NETWORK) -> str:
    return json.dumps({"cniVersion": CNI_VERSION, "name": name, "plugins": list(plugins)}, indent=2) + "\n"
