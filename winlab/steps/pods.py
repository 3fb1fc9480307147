"""Steps that connect the pods: what the CNI profile gives to the API server, to the nodes and to the lab's router."""

from __future__ import annotations

import hashlib

import yaml

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.overlay import ovn
from winlab.design import cni, contract
from winlab.design.cni.model import NodeNetwork, Patch
from winlab.design.plan.cluster import network
from winlab.design.plan.model import NodePlan
from winlab.design.render import nodes
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import linux_nodes
from winlab.steps.payload import Supply
from winlab.steps.states import API, CNI, MEMBER, OBJECTS, PODS_CONNECTED, ROUTES

SILENCE = 300.0  # seconds on hardware without anything new, for what controllers of the cluster make
KINDS_SILENCE = 120.0  # seconds on hardware, for the API server to serve kinds that it was told of
ESTABLISHED = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Established")].status}{"\n"}{end}'


def steps(run: Run, supply: Supply) -> list[Step]:
    """The profile's objects, files for the Linux nodes, routes. Windows nodes' files: winlab/steps/windows_nodes.py."""
    found = [_objects(run, supply)]
    found += [_linux_files(run, node) for node in run.plan.nodes if node.os == "linux"]
    found.append(_routes(run))
    return found


def share(run: Run, node: NodePlan) -> NodeNetwork:
    """A node's part of it; the controller manager gives it a pod network when the node has joined.

    :raises ClusterError: the API server does not answer.
    """
    found = Kubectl.of(run.folder).get("node", node.name)
    return NodeNetwork(node.name, node.os, node.address, found["spec"].get("podCIDR"))


def shares(run: Run) -> list[NodeNetwork]:
    """The parts of all nodes that have joined.

    :raises ClusterError: the API server does not answer.
    """
    found = {row["metadata"]["name"]: row for row in Kubectl.of(run.folder).get("nodes")["items"]}
    return [
        NodeNetwork(node.name, node.os, node.address, found[node.name]["spec"].get("podCIDR"))
        for node in run.plan.nodes
        if node.name in found
    ]


def await_share(run: Run, node: NodePlan, progress: Progress) -> NodeNetwork:
    """As :func:`share`, once the node has its pod network.

    :raises ClusterError: it gets none.
    """
    seen: frozenset[tuple[str, str | None]] = frozenset()
    why = ""

    def look() -> Met[NodeNetwork] | Waiting:
        nonlocal seen, why
        why = "the controller manager has not given it one"
        try:
            # the kubelet registers its node some moments after kubeadm is done
            every = shares(run)
        except ClusterError as error:  # a busy API server: it starts again, and is asked again
            why = error.what
        else:
            own = next((one for one in every if one.name == node.name), None)
            if own is not None and own.pod_cidr is not None:
                return Met(own)
            seen = frozenset((one.name, one.pod_cidr) for one in every)
        return Waiting(f"waiting for the node's pod network: {why}", seen)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            f"'{node.name}' was given no pod network.",
            why=why,
            cure="See 'winlab kubectl -- -n kube-system logs -l component=kube-controller-manager'.",
        )

    return wait.until(look, progress, give_up, stall=run.pace.usual(SILENCE))


def _objects(run: Run, supply: Supply) -> Step:
    plan = run.plan
    profile = cni.get(plan.cluster.profile)

    published = [] if plan.joins else profile.published(plan.cluster.releases)
    patches = [] if plan.joins else profile.patches(nodes.parts(plan))
    objects = nodes.objects(plan)

    def work(progress: Progress) -> None:
        kubectl = Kubectl.of(run.folder)
        for manifest in published:
            progress.say(str(manifest))
            text = supply.obtain([manifest], progress)[0].path.read_text(encoding="utf-8")
            kubectl.apply([row for row in yaml.safe_load_all(text) if row])
        if published:  # the profile's own objects may be of the kinds that these define
            _await_kinds(run, kubectl, progress)
        progress.say("runtime classes and the objects of the CNI profile")
        kubectl.apply(objects)
        for patch in patches:
            _patch(run, kubectl, patch, progress)

    def done() -> bool:
        if published or patches:
            return False  # server-side apply changes nothing where all is as it should be, and mends what is not
        return not objects or Kubectl.of(run.folder).same(objects)

    return Step(OBJECTS(run.lab), work, done, [API(run.lab)], usual=run.pace.usual(4))


def _await_kinds(run: Run, kubectl: Kubectl, progress: Progress) -> None:
    """Wait until the API server serves every kind that it was told of.

    :raises ClusterError: it does not.
    """
    missing: frozenset[str] = frozenset()

    def look() -> Met[None] | Waiting:
        nonlocal missing
        try:
            rows = kubectl.run("get", "customresourcedefinitions", f"--output=jsonpath={ESTABLISHED}").splitlines()
        except ClusterError as error:  # a busy API server: it starts again, and is asked again
            return Waiting(f"waiting for the API server to know the published kinds: {error.what}", missing)
        missing = frozenset(name for name, _, status in (row.partition("=") for row in rows) if status != "True")
        if not missing:
            return Met(None)
        return Waiting(f"waiting for the API server to know the published kinds: {len(missing)} are left", missing)

    def give_up(_: Waiting) -> ClusterError:
        return ClusterError(
            "The API server does not serve the kinds that it was told of.",
            why=f"It lacks {', '.join(sorted(missing))}." if missing else "It does not answer.",
            evidence="winlab kubectl -- describe customresourcedefinitions",
        )

    wait.until(look, progress, give_up, stall=run.pace.usual(KINDS_SILENCE))


def _patch(run: Run, kubectl: Kubectl, patch: Patch, progress: Progress) -> None:
    """Apply a patch once the object is there: another controller makes it, whose pods may have to come first.

    :raises ClusterError: it does not come, or the API server refuses the patch.
    """
    body = yaml.safe_dump(patch.body)
    refusal = ClusterError(f"There is no {patch.resource} {patch.name}.")

    def look() -> Met[None] | Waiting:
        nonlocal refusal
        try:
            kubectl.run("patch", patch.resource, patch.name, "--type=merge", "--patch-file=/dev/stdin", stdin=body)
        except ClusterError as error:
            refusal = error
            return Waiting(f"waiting for {patch.resource} {patch.name}", diagnose.pods(kubectl))
        return Met(None)

    wait.until(look, progress, lambda _: refusal, stall=run.pace.usual(SILENCE))


def same_files(found: dict[str, str], wanted: dict[str, str]) -> bool:
    """Whether a node's CNI files (their SHA-256 by name) are those wanted (their text by name)."""
    return found.items() >= {name: hashlib.sha256(text.encode()).hexdigest() for name, text in wanted.items()}.items()


def _linux_files(run: Run, node: NodePlan) -> Step:
    def work(progress: Progress) -> None:
        call = nodes.cni_files(run.plan, node, await_share(run, node, progress))
        with run.node(node) as there:
            there.run(call, progress.say)

    def done(there: NodeScripts) -> bool:
        wanted = nodes.cni_files(run.plan, node, share(run, node)).files
        return same_files(there.run(contract.LinuxStatus()).cni, wanted)

    after, also = [MEMBER(run.lab, node.name)], [PODS_CONNECTED(run.lab, node.name)]
    return Step(CNI(run.lab, node.name), work, linux_nodes.asks(run, node, done), after, also, usual=3)


def _routes(run: Run) -> Step:
    """Routes to the nodes' pods: on the lab's router (l3) or on the nodes (host-gw), as the profile says."""
    profile = cni.get(run.plan.cluster.profile)
    masquerade = profile.masquerade(network(run.plan))

    def wanted() -> dict[str, str]:
        return {route.cidr: route.via for route in profile.router_routes(network(run.plan), shares(run))}

    def work(progress: Progress) -> None:
        for node in run.plan.nodes:
            await_share(run, node, progress)
        progress.say("routes to the pods of each node")
        with ovn.connect() as northbound:
            northbound.set_pod_routes(run.plan.lab, wanted())
        every = shares(run)
        for node in run.plan.nodes:
            if (call := nodes.routes(run.plan, node, every)) is not None:
                with run.node(node) as there:
                    there.run(call, progress.say)

    def done() -> bool:
        if masquerade is not None:
            return False  # the nodes' own routes: they know themselves whether anything is to be done
        try:
            with ovn.connect() as northbound:
                there = northbound.pod_routes(run.plan.lab)
            return there == wanted() and len(shares(run)) == len(run.plan.nodes)
        except WinlabError:
            return False

    # where nodes have routes of their own: Windows makes its adapter anew together with its network
    kind = MEMBER if masquerade is None else CNI
    return Step(ROUTES(run.lab), work, done, [kind(run.lab, node.name) for node in run.plan.nodes], usual=2)
