"""What a cluster's pod network means for Windows workers. Pure.

Sources: flannel cdf7605 pkg/backend/vxlan/vxlan_windows.go and pkg/subnet/kube; kind's kindnetd (main.go, routes.go);
projectcalico/calico 87c1590.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from winlab.design import cni
from winlab.design.clusters.model import Attachment, Finding, Kind, Seen
from winlab.design.cni.model import WINDOWS_PORT, WINDOWS_VNI

ABOUT = "pod network"
BACKEND, DATA = "flannel.alpha.coreos.com/backend-type", "flannel.alpha.coreos.com/backend-data"
OURS = "winlab-"  # what the names of winlab's own DaemonSets begin with
REPLACE = (
    "Make the cluster again with Calico (VXLAN); or add --set network.cni=l3 --attachment routed, and set routes to "
    "the workers' pods."
)
TRANSLATED = "Between nodes it needs their own addresses, which the lab's router translates."
ROUTE = "Add --attachment routed, or attached."
# By the beginning of a DaemonSet's name: networks that have nothing for Windows
LINUX_ONLY = {
    "cilium": "Cilium",
    "kube-router": "kube-router",
    "rke2-canal": "Canal",
    "canal": "Canal",
    "kube-ovn": "Kube-OVN",
    "ovn": "OVN",
    "antrea-agent": "Antrea, of which winlab knows nothing for Windows",
}


KINDNET = Finding(
    ABOUT,
    "refused",
    "kindnet sets a route to each node's pods via the node's address. For an address that is not on its own link this "
    "fails; after five tries kindnet ends, on every node, again and again.",
    "Attach the workers with --attachment attached. Or make the cluster without kindnet, and apply Calico with VXLAN: "
    "kind: 'networking: {disableDefaultCNI: true}'; minikube: --cni=calico.",
)
ATTACHED = Finding(
    ABOUT,
    "ok",
    "Each node sets routes to the others' pods by their addresses, in one network: the workers get winlab's host-gw.",
)


def finding(seen: Seen, kind: Kind, attachment: Attachment = "routed") -> Finding:
    """The verdict on the pod network.

    :param attachment: how the workers and the cluster's nodes will reach each other.
    """
    if attachment == "attached" and is_on_link(seen):
        return ATTACHED
    if is_kindnet(seen.daemon_sets):
        return KINDNET
    if seen.profile is not None:
        adds = cni.get(seen.profile).has_half and not on_windows(seen)
        half = " winlab adds the Windows half, which the cluster lacks." if adds else ""
        says = f"{seen.network}: the nodes get winlab's files of {seen.profile}.{half}"
        return (
            Finding(ABOUT, "change", f"{says} {TRANSLATED}", ROUTE)
            if attachment == "nat"
            else Finding(ABOUT, "ok", says)
        )
    if backends := overlays(seen):
        return _flannel(backends, kind)
    for name in seen.daemon_sets:
        if network := next((text for start, text in LINUX_ONLY.items() if name.startswith(start)), None):
            return Finding(ABOUT, "change", f"{network} has no half for Windows.", REPLACE)
    says = seen.network or "no DaemonSet of a network is known"
    return Finding(ABOUT, "change", f"winlab does not know how pods are connected: {says}.", REPLACE)


def is_on_link(seen: Seen) -> bool:
    """Whether nodes have routes to each other's pods by their addresses, which is possible in one network alone."""
    return is_kindnet(seen.daemon_sets) or is_host_gw(node.annotations for node in seen.nodes)


def is_host_gw(annotations: Iterable[Mapping[str, str]]) -> bool:
    """Whether flannel connects nodes with these annotations by host-gw."""
    return {one[BACKEND] for one in annotations if BACKEND in one} == {"host-gw"}


def is_kindnet(daemon_sets: Iterable[str]) -> bool:
    """Whether kindnet connects the pods. A worker off the link of the cluster's nodes would break it there."""
    return any(name.startswith("kindnet") for name in daemon_sets)


def on_windows(seen: Seen) -> tuple[str, ...]:
    """The cluster's own DaemonSets that connect the pods of Windows nodes."""
    known = cni.get(seen.profile).windows_daemon_sets if seen.profile else ()
    return tuple(name for name in known if name in seen.daemon_sets)


def overlays(seen: Seen) -> frozenset[tuple[str, int | None]]:
    """The backends of flannel on the cluster's nodes, each with its VNI, if it says one."""
    return frozenset(
        (node.annotations[BACKEND], _vni(node.annotations.get(DATA, "")))
        for node in seen.nodes
        if BACKEND in node.annotations
    )


def is_in_agents(seen: Seen) -> bool:
    """Whether flannel runs in the distribution's own agents: no DaemonSet brings it to other Linux nodes."""
    theirs = (name for name in seen.daemon_sets if not name.startswith(OURS))
    return bool(seen.annotation(BACKEND)) and not any("flannel" in name for name in theirs)


def _flannel(backends: frozenset[tuple[str, int | None]], kind: Kind) -> Finding:
    if {name for name, _ in backends} == {"host-gw"}:
        return Finding(
            ABOUT,
            "change",
            "flannel with host-gw needs all nodes in one network, and the lab's router is in between.",
            "Attach the workers with --attachment attached, if the cluster is on this host. Otherwise add --set "
            "network.cni=l3 --attachment routed, and set routes to the workers' pods on the cluster's nodes.",
        )
    seen = ", ".join(sorted(f"{name}, VNI {'unknown' if vni is None else vni}" for name, vni in backends))
    if backends == {("vxlan", WINDOWS_VNI)}:
        return Finding(
            ABOUT,
            "warning",
            f"flannel with {seen}. Its nodes don't publish the port; Windows has {WINDOWS_PORT}. winlab adds "
            "flannel for its Windows nodes.",
            "Check Backend.Port in net-conf.json, then add --set network.cni=flannel-vxlan.",
        )
    cure = kind.flannel_cure or "Set Backend.VNI and Backend.Port in net-conf.json of the ConfigMap kube-flannel-cfg."
    says = f"flannel with {seen}; Windows has only VXLAN, VNI {WINDOWS_VNI} or more, port {WINDOWS_PORT}."
    return Finding(ABOUT, "change", says, cure)


def _vni(data: str) -> int | None:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    vni = found.get("VNI") if isinstance(found, dict) else None
    return vni if isinstance(vni, int) else None
