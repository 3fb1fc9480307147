"""How a lab and the cluster's nodes reach each other: rows of the verdict. Pure.

Sources: Docker 28's release notes and moby#49832 (what is routed to containers is dropped).
"""

from __future__ import annotations

from winlab.design.clusters.model import Ends, Finding

BACK, OUT = "the API reaches workers", "workers reach nodes"


def findings(ends: Ends) -> list[Finding]:
    """The rows for the lab's attachment, both directions."""
    if ends.attachment == "nat":
        return [_translated(ends)]
    out = [
        Finding(OUT, "change", f"{one.address}: {one.why}.", "Allow the connection to the kubelet, TCP 10250.")
        for one in ends.kubelets
        if one.why
    ]
    if not out and ends.kubelets:
        out = [Finding(OUT, "ok", f"{len(ends.kubelets)} nodes answer this host, without translation.")]
    return [*out, _attached(ends) if ends.attachment == "attached" else _routed(ends)]


def _translated(ends: Ends) -> Finding:
    # a node's answers to the cluster would come from its floating address: OVN 23.03 translates them, too
    says = "The lab's router translates addresses. So there are no logs and no exec, and no connections between pods."
    cure = "Add --attachment routed: the check then prints what this host and the cluster's nodes need."
    if ends.bridge:
        cure = (
            "Add --attachment attached: the nodes are in a network of this host, and Docker drops what is routed there."
        )
    return Finding(BACK, "change", says, cure)


def _routed(ends: Ends) -> Finding:
    if ends.bridge:
        says = f"The nodes are in a network of this host ({ends.bridge}). Docker drops what is routed to containers."
        cure = "Add --attachment attached; or set 'allow-direct-routing' in Docker's daemon.json, and restart it."
        return Finding(BACK, "change", says, cure)
    if ends.trouble:
        return Finding(BACK, "refused", f"{ends.trouble}.", f"On this host: {ends.command}")
    return Finding(
        BACK,
        "change",
        f"This host carries packets from and to {ends.cidr}. Each of the cluster's nodes needs a route there, too.",
        f"On each other host of the cluster: ip route add {ends.cidr} via ADDRESS, with this host's address there. A "
        "node on this host has it already.",
    )


def _attached(ends: Ends) -> Finding:
    if ends.trouble:
        return Finding(BACK, "refused", f"{ends.trouble}.", ends.command)
    return Finding(BACK, "ok", f"The workers will be in the nodes' own network, on the bridge {ends.bridge}.")
