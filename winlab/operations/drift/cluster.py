"""The cluster, as its API server shows it: every node present and Ready, what external clusters have for it, routes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from winlab.adapters.kube import diagnose, identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.errors import NotFoundError, WinlabError
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject, Tier
from winlab.steps import names as dns_names
from winlab.steps import pod_network, systems
from winlab.steps.states import API, CNI, MEMBER, NAMES, OBJECTS, PROXY, READY, ROUTES

CONNECT = (CNI, PROXY, READY)  # a node that is a member


def members(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Whether the API server answers, and has every node, Ready."""
    run = subject.run
    if not subject.cluster:
        return
    progress.say("asking the API server")
    try:
        rows: list[dict[str, Any]] = Kubectl.of(run.folder).get("nodes")["items"]
    except NotFoundError:
        return  # the folder's inspection says what is missing
    except WinlabError as error:
        repairable = not run.plan.joins
        action = "waited for" if repairable else "see to it that the external cluster runs"
        drift = Drift("cluster", "", "API server", "answers", error.why or error.what, action, repairable)
        yield Finding(drift, lab_steps=(API,) if repairable else (), unreached=True, tier=Tier.ACCESS)
        return
    there = {row["metadata"]["name"]: row for row in rows}
    for node in subject.nodes:
        if not node.is_member:
            continue
        if node.name not in there:
            # a controller's join may begin with a reset, which deletes its part of etcd
            steps = (MEMBER, *CONNECT) if node.role == "worker" else CONNECT
            drift = Drift(
                "cluster", node.name, "node", "there", "gone", "its kubelet registers it again", repairable=True
            )
            yield Finding(drift, partial(_register, run, node), steps, (ROUTES,), tier=Tier.CLUSTER)
        elif not diagnose.is_ready(there[node.name]):
            why = diagnose.brief(there[node.name])
            drift = Drift("cluster", node.name, "node", "Ready", f"not Ready: {why}", "waited for", repairable=True)
            yield Finding(drift, None, (READY,), unreached=True, tier=Tier.CLUSTER)


def _register(run: Run, node: NodePlan, progress: Progress) -> None:
    """Make a member's kubelet register its node; a node that is not a member joins in a step."""
    own = systems.of(run, node)
    if own.condition().joined:
        progress.say("restarting the kubelet")
        own.restart_kubelet()


def identities(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """What a cluster must have so that its nodes keep their certificates and their kube-proxy, if winlab made these."""
    run = subject.run
    if not subject.cluster or not run.plan.cluster.identifies:
        return
    try:
        kubectl = Kubectl.of(run.folder)
        for node in subject.nodes:
            if node.is_member and node.role == "worker":
                yield from _identity(run, node, kubectl)
    except WinlabError:
        return  # members says that the API server does not answer


def _identity(run: Run, node: NodePlan, kubectl: Kubectl) -> Iterator[Finding]:
    proxy = node.os not in run.plan.cluster.proxies
    if gone := identity.missing(kubectl, node.name, proxy=proxy):
        there, repairable = ", ".join(gone), node.system.hns or not any("proxy" in one for one in gone)
        action = (
            "made again" if repairable else f"'winlab node rebuild {node.name}': kube-proxy there needs another token"
        )
        drift = Drift(
            "cluster", node.name, "identity", "roles, account", f"gone: {there}", action, repairable=repairable
        )
        yield Finding(drift, partial(_identify, run, node, proxy), tier=Tier.CLUSTER)
    if identity.serving_requests(kubectl, node.name, [node.address])[0]:
        drift = Drift(
            "cluster", node.name, "serving certificate", "approved", "waits for approval", "approved", repairable=True
        )
        yield Finding(drift, None, (READY,), tier=Tier.CLUSTER)


def _identify(run: Run, node: NodePlan, proxy: bool, progress: Progress) -> None:
    """Let a node renew its certificate again, and give its kube-proxy another token."""
    identity.allow_renewal(Kubectl.of(run.folder), node.name)
    if proxy and node.system.hns:
        systems.of(run, node).start("kube-proxy", progress)


def objects(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """What winlab gave the cluster for its nodes and their pods' network: only whether it is there."""
    if not subject.cluster:
        return
    try:
        gone = Kubectl.of(subject.run.folder).missing(nodes.objects(subject.run.plan))
    except WinlabError:
        return  # members says that the API server does not answer
    if gone:
        drift = Drift("cluster", "", "objects", "there", f"gone: {', '.join(gone)}", "made again", repairable=True)
        yield Finding(drift, lab_steps=(OBJECTS,), tier=Tier.CLUSTER)


def routes(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The lab's router's routes to the nodes' pods, where the CNI profile has any."""
    run = subject.run
    if not subject.cluster:
        return
    try:
        wanted = planned_routes(run)
    except WinlabError:
        return  # the API server does not answer, or a node has no pods yet: members says so
    if wanted is None:
        return  # a node is missing: its route comes with it
    with run.overlay() as northbound:
        there = northbound.pod_routes(run.lab)
    for cidr in sorted(wanted.keys() | there.keys()):
        expected, actual = wanted.get(cidr, "none"), there.get(cidr, "none")
        if expected != actual:
            drift = Drift("network", "", f"route to pods {cidr}", expected, actual, "written again", repairable=True)
            yield Finding(drift, lab_steps=(ROUTES,), tier=Tier.CLUSTER)


def names(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The names of the lab's machines, if cluster DNS answers for them."""
    run = subject.run
    if not subject.cluster or not dns_names.are_wanted(run.plan):
        return
    try:
        same = dns_names.are_there(run)
    except WinlabError:
        return  # members says that the API server does not answer
    if not same:
        drift = Drift("cluster", "", "names of machines", "known to pods", "others", "written again", repairable=True)
        yield Finding(drift, lab_steps=(NAMES,), tier=Tier.CLUSTER)


def planned_routes(run: Run) -> dict[str, str] | None:
    """The routes that the lab's router should have, network to next hop; None while a node is missing.

    :raises WinlabError: the API server does not answer, or a node has no pod network yet.
    """
    shares = pod_network.shares(run)
    if len(shares) < len(run.plan.members):
        return None
    return pod_network.router_routes(run, shares)
