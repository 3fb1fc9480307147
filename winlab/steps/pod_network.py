"""What the pods' network needs to know of each node: its address and the pod network that it was given."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Sequence

from winlab.adapters.kube import probe
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import cni
from winlab.design.clusters import networks
from winlab.design.cni.model import NodeNetwork, Route
from winlab.design.plan.cluster import network
from winlab.design.plan.node_plan import NodePlan
from winlab.design.system import LINUX
from winlab.engine.run import Run
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.printable import printable
from winlab.steps import controllers

FLANNEL = "flannel.alpha.coreos.com/"  # what the names of its annotations begin with
SILENCE = 300.0  # seconds on hardware without anything new from the controller manager


def share(run: Run, node: NodePlan) -> NodeNetwork:
    """A node's part of the network; the controller manager gives it a pod network once the node has joined.

    :raises ClusterError: the API server does not answer.
    """
    node_object = Kubectl.of(run.folder).get("node", node.name)
    return NodeNetwork(node.name, node.os, node.address, node_object.get("spec", {}).get("podCIDR"))


def shares(run: Run) -> list[NodeNetwork]:
    """The parts of all nodes that have joined.

    :raises ClusterError: the API server does not answer.
    """
    by_name = {row["metadata"]["name"]: row for row in Kubectl.of(run.folder).get("nodes")["items"]}
    return [
        NodeNetwork(node.name, node.os, node.address, by_name[node.name].get("spec", {}).get("podCIDR"))
        for node in run.plan.members
        if node.name in by_name
    ]


def others(run: Run) -> list[NodeNetwork]:
    """The parts of the external cluster's own nodes, if they are in the lab's network; none otherwise.

    :raises ClusterError: the API server does not answer.
    """
    if run.plan.network.mode != "attached":
        return []
    own = {node.name for node in run.plan.members}
    network = ipaddress.IPv4Network(run.plan.network.cidr)
    found = []
    for one in map(probe.node, Kubectl.of(run.folder).get("nodes")["items"]):
        is_near = one.address and ipaddress.IPv4Address(one.address) in network
        if one.name not in own and one.pod_cidr and is_near:
            found.append(NodeNetwork(one.name, LINUX.name, one.address, one.pod_cidr))
    return found


def announce(run: Run, node: NodePlan) -> None:
    """Have flannel on the external cluster's nodes set routes to a node's pods, if it does that by host-gw.

    A flanneld on the node would set these annotations itself (flannel cdf7605, pkg/subnet/kube/kube.go).

    :raises ClusterError: the API server does not answer, or refuses it.
    """
    kubectl = Kubectl.of(run.folder)
    own = {one.name for one in run.plan.members}
    seen = map(probe.node, kubectl.get("nodes")["items"])
    if not networks.is_host_gw(one.annotations for one in seen if one.name not in own):
        return
    said = {"kube-subnet-manager": "true", "backend-type": "host-gw", "backend-data": "null", "public-ip": node.address}
    words = [f"{FLANNEL}{name}={value}" for name, value in said.items()]
    kubectl.run("annotate", "node", node.name, "--overwrite", *words)


def router_routes(run: Run, every: Sequence[NodeNetwork]) -> dict[str, str]:
    """The routes that the lab's router should have, network to next hop.

    Pods send to machines beside the cluster as they do to nodes: with their own addresses, if the network carries
    those. Such a machine answers through its router, even if the nodes' own routes connect the pods (host-gw).

    :param every: the parts of the network of the nodes that have joined.
    :raises WinlabError: a node has no pod network yet.
    """
    profile = cni.get(run.plan.cluster.profile)
    routes = profile.router_routes(network(run.plan), every)
    if not routes and run.plan.beside and profile.masquerade(network(run.plan)) is not None:
        routes = [Route(str(one.pods), one.address) for one in every]
    return {route.cidr: route.via for route in routes}


def await_share(run: Run, node: NodePlan, progress: Progress) -> NodeNetwork:
    """Like :func:`share`, but wait until the node has its pod network, if its CNI profile needs it.

    Some control planes give nodes none: Calico there has its own.

    :raises ClusterError: it gets none.
    """
    needed = _is_share_needed(run, node)
    seen: frozenset[tuple[str, str | None]] = frozenset()
    why = ""

    def look() -> Met[NodeNetwork] | Waiting:
        nonlocal seen, why
        why = "the controller manager has not given it one"
        try:
            # the kubelet registers its node some moments after it has joined
            every = shares(run)
        except ClusterError as error:  # the API server is busy or restarting: ask it again
            why = error.what
        else:
            own = next((one for one in every if one.name == node.name), None)
            if own is not None and (own.pod_cidr is not None or not needed):
                return Met(own)
            seen = frozenset((one.name, one.pod_cidr) for one in every)
        return Waiting(f"waiting for the node's pod network: {why}", seen)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            f"'{node.name}' was given no pod network.",
            why=why,
            cure="Look at 'winlab kubectl -- -n kube-system logs -l component=kube-controller-manager'.",
        )

    return controllers.until(run, look, progress, give_up, stall=run.pace.usual(SILENCE))


def _is_share_needed(run: Run, node: NodePlan) -> bool:
    profile, pods = cni.get(run.plan.cluster.profile), network(run.plan)
    without = NodeNetwork(node.name, node.os, node.address)
    try:
        if node.system.hns:
            profile.windows_files(pods, without)
            profile.hns_network(pods, without)
            profile.proxy_network(pods, without)
        else:
            profile.linux_files(pods, without)
    except WinlabError:  # as its interface says
        return True
    return False


def waiting_pods(kubectl: Kubectl, node: str) -> str:
    """The pods on a node whose containers do not run yet, and what they wait for, as text.

    :raises ClusterError: the API server does not answer.
    """
    texts = []
    for pod in kubectl.get("pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}").get("items", []):
        status = pod.get("status", {})
        for row in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
            if reason := row.get("state", {}).get("waiting", {}).get("reason"):
                texts.append(f"{pod['metadata']['name']}: {reason}")
                break
    return printable(", ".join(texts))


def same_files(digests: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether the files of a node (their SHA-256 by name) include those wanted (their text by name)."""
    return digests.items() >= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in wanted.items()}.items()
