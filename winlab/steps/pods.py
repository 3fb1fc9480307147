"""Steps that connect the pods: what the CNI profile gives to the API server, to the nodes and to the lab's router."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import yaml

from winlab.adapters.guests import contract
from winlab.adapters.guests.scripts import Node
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.overlay import ovn
from winlab.design import cni
from winlab.design.cni.model import Endpoint, NodeNetwork, Patch
from winlab.design.cni.routed import Routed
from winlab.design.plan.cluster import network
from winlab.design.plan.model import NodePlan
from winlab.design.render import runtime_classes
from winlab.engine.engine import Step
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import Context, linux_nodes
from winlab.steps.payload import Supply

OBJECTS = "cluster objects"
ROUTES = "pod routes"
POLL = 3.0
LIMIT = 120  # seconds for the API server to serve kinds that it was told of


def name(node: str) -> str:
    """The name of the step after which a node's pods have a network."""
    return f"cni {node}"


def steps(context: Context, supply: Supply) -> list[Step]:
    """The profile's objects, files for the Linux nodes, routes. Windows nodes' files: winlab/steps/windows_nodes.py."""
    found = [_objects(context, supply)]
    found += [_linux_files(context, node) for node in context.plan.nodes if node.os == "linux"]
    found.append(_routes(context))
    return found


def share(context: Context, node: NodePlan) -> NodeNetwork:
    """A node's part of it; the controller manager gives it a pod network when the node has joined.

    :raises ClusterError: the API server does not answer.
    """
    found = Kubectl.of(context.state).get("node", node.name)
    return NodeNetwork(node.name, node.os, node.address, found["spec"].get("podCIDR"))


def shares(context: Context) -> list[NodeNetwork]:
    """The parts of all nodes that have joined.

    :raises ClusterError: the API server does not answer.
    """
    found = {row["metadata"]["name"]: row for row in Kubectl.of(context.state).get("nodes")["items"]}
    return [
        NodeNetwork(node.name, node.os, node.address, found[node.name]["spec"].get("podCIDR"))
        for node in context.plan.nodes
        if node.name in found
    ]


def await_share(context: Context, node: NodePlan, progress: Progress) -> NodeNetwork:
    """As :func:`share`, once the node has its pod network."""
    begun = time.monotonic()
    while True:
        why = "the controller manager has not given it one"
        try:
            # the kubelet registers its node some moments after kubeadm is done
            own = next((one for one in shares(context) if one.name == node.name), None)
            if own is not None and own.pod_cidr is not None:
                return own
        except ClusterError as error:  # a busy API server: it starts again, and is asked again
            why = error.what
        progress.say(f"waiting for the node's pod network: {why}")
        if time.monotonic() - begun > 300 * context.scale:
            raise ClusterError(
                f"'{node.name}' was given no pod network.",
                why=why,
                cure="See 'winlab kubectl -- -n kube-system logs -l component=kube-controller-manager'.",
            )
        time.sleep(POLL)


def _objects(context: Context, supply: Supply) -> Step:
    plan = context.plan
    profile = cni.get(plan.cluster.profile)

    parts = [NodeNetwork(node.name, node.os, node.address) for node in plan.nodes]
    releases = sorted({node.windows.release for node in plan.nodes if node.windows is not None})
    published = [] if plan.joins else profile.published(plan.cluster.versions)
    patches = [] if plan.joins else profile.patches(parts)

    def wanted() -> list[dict[str, Any]]:
        if plan.joins:  # its network is its own affair
            return runtime_classes.objects(releases)
        host, _, port = plan.cluster.endpoint.rpartition(":")
        own = profile.manifests(network(plan), parts, Endpoint(host, int(port)), plan.cluster.versions)
        return [*runtime_classes.objects(releases), *own]

    def run(progress: Progress) -> None:
        kubectl = Kubectl.of(context.state)
        for manifest in published:
            progress.say(str(manifest))
            text = supply.obtain([manifest], progress)[0].path.read_text(encoding="utf-8")
            kubectl.apply([row for row in yaml.safe_load_all(text) if row])
        if published:  # the profile's own objects may be of the kinds that these define
            progress.say("waiting for the API server to know the published kinds")
            kubectl.run("wait", "--for=condition=Established", "crd", "--all", f"--timeout={LIMIT}s", limit=LIMIT)
        progress.say("runtime classes and the objects of the CNI profile")
        kubectl.apply(wanted())
        for patch in patches:
            _patch(kubectl, patch, progress, context.scale)

    def done() -> bool:
        if published or patches:
            return False  # server-side apply changes nothing where all is as it should be, and mends what is not
        objects = wanted()
        return not objects or Kubectl.of(context.state).same(objects)

    return Step(OBJECTS, run, done, (linux_nodes.CONFIG,), usual=4 * context.scale)


def _patch(kubectl: Kubectl, patch: Patch, progress: Progress, scale: float) -> None:
    """Apply a patch once the object is there: another controller makes it."""
    begun = time.monotonic()
    while True:
        try:
            body = yaml.safe_dump(patch.body)
            kubectl.run("patch", patch.resource, patch.name, "--type=merge", "--patch-file=/dev/stdin", stdin=body)
            return
        except ClusterError:
            if time.monotonic() - begun > 300 * scale:
                raise
            progress.say(f"waiting for {patch.resource} {patch.name}")
            time.sleep(POLL)


def same_files(found: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether a node's CNI files (their SHA-256 by name) are those wanted (their text by name)."""
    return found.items() >= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in wanted.items()}.items()


def _linux_files(context: Context, node: NodePlan) -> Step:
    profile = cni.get(context.plan.cluster.profile)

    def wanted(own: NodeNetwork) -> dict[str, str]:
        # the DaemonSets of a cluster made elsewhere write their own files; profiles of plug-ins alone have none
        theirs = context.plan.joins and not isinstance(profile, Routed)
        return {} if theirs else profile.linux_files(network(context.plan), own)

    def run(progress: Progress) -> None:
        files = wanted(await_share(context, node, progress))
        with linux_nodes.connected(context, node) as there:
            there.run(contract.Cni(files=files), progress.say)

    def done(there: Node) -> bool:
        return same_files(there.run(contract.LinuxStatus()).cni, wanted(share(context, node)))

    needs = (linux_nodes.member_step(context, node),)
    return Step(name(node.name), run, linux_nodes.asks(context, node, done), needs, usual=3)


def _routes(context: Context) -> Step:
    """Routes to the nodes' pods: on the lab's router (l3) or on the nodes (host-gw), as the profile says."""
    profile = cni.get(context.plan.cluster.profile)
    masquerade = profile.masquerade(network(context.plan))

    def wanted() -> dict[str, str]:
        return {route.cidr: route.via for route in profile.router_routes(network(context.plan), shares(context))}

    def run(progress: Progress) -> None:
        for node in context.plan.nodes:
            await_share(context, node, progress)
        progress.say("routes to the pods of each node")
        with ovn.connect() as northbound:
            northbound.set_pod_routes(context.plan.lab, wanted())
        if masquerade is None:
            return
        own = profile.routes(network(context.plan), shares(context))
        for node in context.plan.nodes:
            routes = [contract.Route(to=route.cidr, via=route.via) for route in own[node.name]]
            with linux_nodes.connected(context, node) as there:
                there.run(contract.Routes(routes=routes, masquerade=masquerade), progress.say)

    def done() -> bool:
        if masquerade is not None:
            return False  # the nodes' own routes: they know themselves whether anything is to be done
        try:
            with ovn.connect() as northbound:
                there = northbound.pod_routes(context.plan.lab)
            return there == wanted() and len(shares(context)) == len(context.plan.nodes)
        except WinlabError:
            return False

    needs = [linux_nodes.member_step(context, node) for node in context.plan.nodes]
    if masquerade is not None:  # Windows makes its adapter anew together with its network
        needs += [name(node.name) for node in context.plan.nodes if node.os == "windows"]
    return Step(ROUTES, run, done, tuple(needs), usual=2)
