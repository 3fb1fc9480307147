"""What nodes are given: files for their first boot, the distribution's view of the lab, and settings of scripts. Pure.

Steps run these calls; ``winlab plan --render`` writes them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from winlab.design import cni
from winlab.design.cni.model import HALF, SERVER_NAME, Endpoint, NodeNetwork
from winlab.design.contract import on_both
from winlab.design.contract.call import Call
from winlab.design.distribution.model import ClusterSettings, Member, controller_taints, worker_taints
from winlab.design.plan.cluster import network
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan, windows_releases
from winlab.design.render import runtime_classes
from winlab.design.render.templates import Expand

MACHINE = "winlab.internal/machine"  # a label, by which destroy finds the lab's nodes in an external cluster
BARE = "winlab.internal/no-taint"  # a label of nodes that have no taint because the spec says so


def cluster(plan: Plan) -> ClusterSettings:
    """The cluster as its distribution's files need it."""
    return ClusterSettings(
        versions=plan.cluster.versions,
        endpoint=plan.cluster.endpoint,
        names=plan.cluster.names,
        pod_cidr=plan.cluster.pod_cidr,
        service_cidr=plan.cluster.service_cidr,
        domain=plan.cluster.domain,
        dns=plan.cluster.dns,
        proxies=plan.cluster.proxies,
        proxy_mode=cni.get(plan.cluster.profile).proxy_mode,
        preloaded=True,
        emulated=any(one.accelerator != "kvm" for one in plan.hypervisors.values()),
    )


def member(plan: Plan, node: NodePlan) -> Member:
    """A node as its distribution's files need it."""
    linux_workers = sum(other.role == "worker" for other in plan.linux_nodes())
    if node.role == "controller":
        taints = controller_taints(linux_workers)
    else:
        taints = worker_taints(node.system) if node.tainted else ()
    labels = plan.labels(node) | ({MACHINE: node.uuid} if plan.joins else {})
    labels |= {} if node.tainted else {BARE: "true"}
    return Member(node.name, node.address, node.system, labels, taints, node.role == "controller")


def objects(plan: Plan) -> list[dict[str, Any]]:
    """The cluster's objects: runtime classes, and those of the CNI profile.

    An external cluster manages its own network: it gets the Windows half alone, if it lacks that.
    """
    classes = runtime_classes.objects(windows_releases(plan.members))
    host, _, port = plan.cluster.endpoint.rpartition(":")
    profile, endpoint = cni.get(plan.cluster.profile), Endpoint(host, int(port))
    if plan.joins:
        return [*classes, *(_half(plan, replace(endpoint, name=SERVER_NAME)) if plan.cluster.half else ())]
    return [*classes, *profile.manifests(network(plan), parts(plan), endpoint, plan.cluster.releases)]


def _half(plan: Plan, endpoint: Endpoint) -> list[dict[str, Any]]:
    """The Windows half of an external cluster's network: for nodes of labs, with a label by which it is removed."""
    objects = cni.get(plan.cluster.profile).windows_half(network(plan), endpoint)
    ours = {"nodeSelectorTerms": [{"matchExpressions": [{"key": MACHINE, "operator": "Exists"}]}]}
    for row in objects:
        row["metadata"]["labels"] = {**row["metadata"].get("labels", {}), HALF: plan.cluster.profile}
        if row["kind"] == "DaemonSet":
            affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ours}}
            row["spec"]["template"]["spec"]["affinity"] = affinity
    return objects


def parts(plan: Plan) -> list[NodeNetwork]:
    """All nodes for CNI profiles, before they have pod networks."""
    return [NodeNetwork(node.name, node.os, node.address) for node in plan.members]


class NodeFiles(ABC):
    """What one node is given. linux.py and windows.py have what only one of the systems has."""

    folder: str  # of the files for the first boot, where ``winlab plan --render`` writes them

    @abstractmethod
    def first_boot(self, credentials: Credentials, expand: Expand) -> dict[str, bytes]:
        """The files that the node reads at its first boot, by path.

        :param expand: makes the text of a user's own template.
        """

    @abstractmethod
    def cni(self, share: NodeNetwork) -> on_both.Cni:
        """The node's CNI configuration.

        :param share: the node with its pod network.
        """

    @abstractmethod
    def calls(self, share: NodeNetwork, shares: Sequence[NodeNetwork]) -> Iterator[Call[Any]]:
        """The scripts that are run in the node, in order, with placeholders for what is not known before.

        :param share: the node with its pod network; *shares*: all nodes with theirs.
        """


def routes(plan: Plan, node: NodePlan, shares: Sequence[NodeNetwork]) -> on_both.Routes | None:
    """The routes to other nodes' pods on a node itself; None if the lab's router has them."""
    profile = cni.get(plan.cluster.profile)
    masquerade = profile.masquerade(network(plan))
    if masquerade is None:
        return None
    own = profile.routes(network(plan), list(shares))[node.name]
    return on_both.Routes(
        routes=[on_both.RouteSetting(to=route.cidr, via=route.via) for route in own], masquerade=masquerade
    )
