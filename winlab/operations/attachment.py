"""How a lab and an external cluster will reach each other, before machines are made; and what is left of that."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from winlab import settings
from winlab.design.clusters.model import Ends, Reach
from winlab.design.plan import addresses
from winlab.design.plan import attachment as planned
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.design.plan.facts import HostFacts, Way
from winlab.design.plan.model import Plan
from winlab.design.plan.tags import Tag
from winlab.design.spec import pools
from winlab.design.spec.model import Spec
from winlab.errors import UsageError
from winlab.events import Progress, Quiet
from winlab.host import attachment, connect, routes

KUBELET = 10250
SECONDS = 5.0  # for a connection


def located(cluster: ForeignCluster, spec: Spec) -> ForeignCluster:
    """The cluster with the bridge of this host that its nodes are on, if workers are to be attached to it."""
    if spec.network.attachment != "attached":
        return cluster
    return replace(cluster, bridge=bridge_of(cluster.addresses))


def bridge_of(nodes: Iterable[str]) -> LocalBridge | None:
    """The bridge of this host that nodes with these addresses are on; None if there is none."""
    return attachment.find(nodes) if settings.network_is_here() else None


def ends(spec: Spec, lab: str, facts: HostFacts, router: str, nodes: Sequence[str], pods: Sequence[str]) -> Ends:
    """What this host does for a lab that is not planned yet, and for a cluster. Nothing is touched.

    :param router: the external address of the lab's router.
    :param nodes: the addresses of the cluster's nodes; *pods*: their pods' networks.
    """
    mode, bridge = spec.network.attachment, bridge_of(nodes)
    found = Ends(spec.network.cidr, mode, bridge.name if bridge else "")
    if mode == "nat":
        return found
    found = replace(found, kubelets=[_reach(node) for node in nodes])
    if mode == "routed":
        networks = spec.network.routed or (*(f"{one}/32" for one in nodes), *pods)
        trouble = routes.trouble(found.cidr, router, nodes, facts)
        return replace(found, trouble=trouble, command=routes.command(found.cidr, router, networks))
    if bridge is None:
        trouble = f"No bridge of this host is in the network of the cluster's nodes ({', '.join(nodes) or 'none'})"
        return replace(found, trouble=trouble, command="Take --attachment routed.")
    where = planned.on_bridge(bridge, lab)
    offsets = pools.places(spec.pools)
    inner = [where.inner(offset) for pool in spec.pools for offset in offsets[pool.name][: pool.count]]
    trouble, cure = _attachable(bridge.name, inner)
    return replace(found, cidr=where.cidr, trouble=trouble, command=cure)


def require(plan: Plan, cluster: ForeignCluster, there: Collection[str]) -> None:
    """Check that packets between the plan's nodes and the cluster's will pass this host, before anything is made.

    :param there: the names of the lab's machines that already exist.
    :raises UsageError: they will not; the error has what root runs about that.
    """
    net = plan.network
    if net.attachment is None:
        return
    if net.mode == "routed":
        trouble = routes.trouble(net.cidr, net.router_external, cluster.addresses, plan.host)
        cure = f"Run '{routes.command(net.cidr, net.router_external, net.attachment.networks)}'."
    else:
        new = [node.address for node in plan.nodes if node.name not in there]
        trouble, cure = _attachable(net.attachment.bridge, new)
    silent = [one for one in map(_reach, cluster.addresses) if one.why]
    if not trouble and silent and len(silent) == len(cluster.addresses):
        trouble = f"This host reaches none of the cluster's nodes: {silent[0].address}: {silent[0].why}"
        cure = f"Allow connections to the kubelets, TCP {KUBELET}."
    if trouble:
        raise UsageError("The lab and the cluster would not reach each other.", why=f"{trouble}.", cure=cure)


def ways(plan: Plan) -> list[str]:
    """How the cluster's nodes reach the lab's: what the user sets for that. Pure."""
    net = plan.network
    if net.mode == "nat":
        return [
            "The lab's router translates addresses. So that cluster gets no logs from these nodes, no exec, and no "
            "connections to their pods. A lab with --attachment routed has them."
        ]
    if net.mode == "routed":
        return [f"Each node of it on another host needs a route: {net.cidr} via this host's address there."]
    return []


def trouble(plan: Plan) -> tuple[str, str]:
    """Why packets between an existing lab and its cluster don't pass this host, and what root runs about that.

    Both are empty if nothing is wrong.
    """
    net = plan.network
    if net.attachment is None or not settings.network_is_here():
        return "", ""
    if net.attachment.bridge:
        return attachment.trouble(net.attachment.bridge), f"sudo winlab host attach {net.attachment.bridge}"
    return (
        routes.trouble(net.cidr, net.router_external, (), plan.host),
        routes.command(net.cidr, net.router_external, net.attachment.networks),
    )


def restore(plan: Plan, progress: Progress) -> None:
    """Have this host carry a lab's packets again. Needs root.

    :raises WinlabError: it can't.
    """
    net = plan.network
    assert net.attachment is not None
    if net.attachment.bridge:
        connect.attach(progress, net.attachment.bridge)
    else:
        connect.route(progress, net.cidr, Way(router=net.router_external, networks=net.attachment.networks))


def leave(tags: Iterable[Tag], facts: HostFacts) -> list[str]:
    """Have this host carry no more packets of a lab's machines that are removed; as root.

    :returns: what root still has to run, one command each.
    """
    left = []
    machines = list(tags)
    for network, way in facts.ways.items():
        cidr, block = ipaddress.IPv4Network(network), addresses.blocks(facts.external_cidr, [way.router])
        own = [one for one in machines if ipaddress.IPv4Address(one.address) in cidr]
        if not any(addresses.blocks(facts.external_cidr, [one.floating]) == block for one in own):
            continue
        if os.geteuid() == 0:
            connect.route(Quiet(), network, None)
        else:
            left.append(f"sudo winlab host route {network} --undo")
    return left


def _attachable(bridge: str, wanted: Sequence[str]) -> tuple[str, str]:
    """Why nodes with these addresses can't be attached to a bridge, and the cure; empty if they can."""
    if trouble := attachment.trouble(bridge):
        return trouble, f"Run 'sudo winlab host attach {bridge}'."
    if taken := attachment.answered(wanted, bridge):
        cure = "Another lab or machine has them: take another name for the lab, or remove that machine."
        return f"These addresses on '{bridge}' are in use already: {', '.join(taken)}", cure
    return "", ""


def _reach(node: str) -> Reach:
    try:
        with socket.create_connection((node, KUBELET), SECONDS):
            return Reach(f"{node}:{KUBELET}")
    except OSError as error:
        return Reach(f"{node}:{KUBELET}", str(error))
