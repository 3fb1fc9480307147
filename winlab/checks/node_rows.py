"""The rows about node objects and routes. They read only the API server and OVN, so they also run in a rehearsal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from winlab.checks import pods
from winlab.checks.model import CheckFailed, NotApplicable, release_build, said
from winlab.checks.objects import BUILD, OS, Object, label, name_of, node_problem, pod_problem
from winlab.checks.testpods import TestPods
from winlab.design.render.nodes import BARE
from winlab.design.render.runtime_classes import HANDLER
from winlab.design.system import WINDOWS
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import WinlabError
from winlab.events import Quiet

assert WINDOWS.taint is not None  # keeps Linux pods away
TAINT = WINDOWS.taint
SANDBOX = "FailedCreatePodSandBox"
# CRI's answer to a RuntimeClass whose handler is not in containerd's configuration
NO_HANDLER = ("no runtime for", "no runtime handler")
LEASE_LOOK = 12.0  # seconds between looks; the kubelet renews its lease every 10
LEASE_SILENCE = 48.0  # seconds on hardware without another node's renewal


def labels(testpods: TestPods) -> str:
    """Every Windows node is Ready, with labels for its system and its build, which is that of its image's release."""
    by_name = {tag.node: tag for tag in testpods.windows}

    def check(node: Object) -> str:
        if problem := node_problem(node):
            raise CheckFailed(f"it is not Ready: {problem}")
        tag = by_name[name_of(node)]
        if label(node, OS) != tag.os:
            raise CheckFailed(f"its label {OS} is '{label(node, OS)}'")
        if not label(node, BUILD):
            raise CheckFailed(f"it has no label {BUILD}")
        wanted = release_build(tag.image)
        if wanted and label(node, BUILD) != wanted:
            raise CheckFailed(f"its build is {label(node, BUILD)}, but {tag.image} is {wanted}")
        return label(node, BUILD)

    return _each(testpods, check)


def taint(testpods: TestPods) -> str:
    """Every Windows node has the taint that keeps away pods for other systems, unless the spec leaves it out."""

    def check(node: Object) -> str:
        if label(node, BARE):
            return "none, as the spec says"
        taints = node.get("spec", {}).get("taints", [])
        if not any(pods.taint(TAINT).items() <= item.items() for item in taints):
            raise CheckFailed(f"it does not have {TAINT}, only {[item.get('key') for item in taints]}")
        return str(TAINT)

    return _each(testpods, check)


def address(testpods: TestPods) -> str:
    """Every Windows node reports the address that the lab gave it."""

    def check(node: Object) -> str:
        reported = [a["address"] for a in node["status"].get("addresses", []) if a["type"] == "InternalIP"]
        wanted = next(tag.address for tag in testpods.windows if tag.node == name_of(node))
        if reported != [wanted]:
            raise CheckFailed(f"it reports {', '.join(reported) or 'no address'} instead of {wanted}")
        return wanted

    return _each(testpods, check)


def kubelet(testpods: TestPods) -> str:
    """Every Windows node has the version of Kubernetes that the lab's Linux nodes have, and containerd."""
    ours = {tag.node for tag in testpods.linux}  # an external cluster may have a newer kubelet
    others = {info(node, "kubeletVersion") for node in testpods.cluster.of("Node") if name_of(node) in ours}

    def check(node: Object) -> str:
        version, runtime = info(node, "kubeletVersion"), info(node, "containerRuntimeVersion")
        if others and version not in others:
            raise CheckFailed(f"its kubelet is {version}, but those of Linux nodes are {', '.join(sorted(others))}")
        if not runtime.startswith("containerd://"):
            raise CheckFailed(f"its runtime is '{runtime}'")
        return f"{version}, {runtime}"

    return _each(testpods, check)


def lease(testpods: TestPods) -> str:
    """Every Windows node's kubelet renews its lease during the check."""
    before = _renewals(testpods)
    if missing := [tag.node for tag in testpods.windows if tag.node not in before]:
        raise CheckFailed(f"no lease of {', '.join(missing)}")

    def look() -> Met[dict[str, datetime]] | Waiting:
        now = _renewals(testpods)
        silent = {node: first for node, first in before.items() if now.get(node, first) <= first}
        told = "; ".join(f"{node}: its lease was last renewed at {first}" for node, first in silent.items())
        return Waiting(told, frozenset(silent)) if silent else Met(now)

    def give_up(last: Waiting) -> CheckFailed:
        return CheckFailed(last.says)

    after = wait.until(look, Quiet(), give_up, stall=LEASE_SILENCE * testpods.access.scale, poll=LEASE_LOOK)

    def check(node: Object) -> str:
        name = name_of(node)
        return f"renewed {(after[name] - before[name]).total_seconds():.0f} s later"

    return _each(testpods, check)


def runtime_classes(testpods: TestPods) -> str:
    """There is a RuntimeClass for every Windows node's build, and it has the toleration."""

    def check(node: Object) -> str:
        runtime_class = pods.runtime_class(node, testpods.cluster.of("RuntimeClass"))
        if runtime_class is None:
            raise CheckFailed(f"no RuntimeClass has the handler {HANDLER} and the build {label(node, BUILD)}")
        if not _tolerates(runtime_class.get("scheduling", {}).get("tolerations", [])):
            raise CheckFailed(f"{name_of(runtime_class)} does not have the toleration for {TAINT.key}={TAINT.value}")
        return name_of(runtime_class)

    return _each(testpods, check)


def windows_pod(testpods: TestPods, pod: str) -> str:
    """A Windows pod was admitted, scheduled to its node and passed to containerd there.

    In a rehearsal it fails when containerd asks Windows for a network namespace; the check expects that event.
    """
    seat = testpods.seat(pod)
    pod_object = testpods.own.named("Pod", pod)
    if pod_object is None:
        raise CheckFailed(f"the pod {pod} was not created")
    spec = pod_object["spec"]
    if not _tolerates(spec.get("tolerations", [])):
        raise CheckFailed("admission did not give it the toleration of its RuntimeClass")
    if spec.get("nodeName") != seat.node:
        where = spec.get("nodeName") or f"no node: {pod_problem(pod_object)}"
        raise CheckFailed(f"it was scheduled to {where} instead of {seat.node}")
    by = f"on {seat.node} by {spec.get('runtimeClassName', 'its own toleration')}"
    problem = pod_problem(pod_object)
    if not problem:
        return f"{by}, and runs"
    sandbox = [event for event in testpods.own.warnings("Pod", pod) if event.get("reason") == SANDBOX]
    if not testpods.standin or not sandbox:
        raise CheckFailed(f"{by}, and does not run: {testpods.cause(pod, problem)}")
    message = str(sandbox[-1].get("message", ""))
    if any(words in message for words in NO_HANDLER):
        raise CheckFailed(f"{by}, and containerd does not know the handler: {said(Exception(message))}")
    return f"{by}, up to containerd, which says: {said(Exception(message))}"


def routes(testpods: TestPods) -> str:
    """OVN's router has a route to every node's pod network.

    :raises NotApplicable: it has none, because the profile is not l3; other rows check that pods reach each other.
    """
    try:
        by_network = testpods.access.routes()
    except WinlabError as error:
        raise CheckFailed(said(error)) from error
    if not by_network:
        raise NotApplicable("OVN has no such routes: this lab's CNI profile does without")
    addresses = {tag.node: tag.address for tag in testpods.tags}
    missing = []
    for node in testpods.cluster.of("Node"):
        network, wanted = node["spec"].get("podCIDR"), addresses.get(name_of(node))
        if network is None or by_network.get(network) != wanted:
            missing.append(f"{network or 'no pod network'} of {name_of(node)} goes to {by_network.get(network or '')}")
    if missing:
        raise CheckFailed("; ".join(missing))
    return f"{len(by_network)} networks"


def _each(testpods: TestPods, check: Callable[[Object], str]) -> str:
    """Check every Windows node.

    :raises CheckFailed: it fails for at least one node; all of them are named.
    """
    seen, failures = [], []
    for tag in testpods.windows:
        try:
            seen.append(f"{tag.node}: {check(testpods.node(tag))}")
        except CheckFailed as failed:
            failures.append(f"{tag.node}: {failed}")
    if failures:
        raise CheckFailed("; ".join(failures))
    return "; ".join(seen)


def info(node: Object, key: str) -> str:
    """What a node's kubelet reports about its system (``bootID``); empty if nothing."""
    return str(node.get("status", {}).get("nodeInfo", {}).get(key, ""))


def _tolerates(tolerations: list[Object]) -> bool:
    return any(
        toleration.get("key") == TAINT.key and toleration.get("effect") in (None, "", TAINT.effect)
        and (toleration.get("operator") == "Exists" or toleration.get("value") == TAINT.value)
        for toleration in tolerations
    )  # fmt: skip


def _renewals(testpods: TestPods) -> dict[str, datetime]:
    """When the lease of each Windows node was last renewed; nodes without one are left out.

    :raises CheckFailed: the API server does not answer.
    """
    try:
        answer = testpods.access.kubectl.get("leases.coordination.k8s.io", "--namespace=kube-node-lease")
    except WinlabError as error:
        raise CheckFailed(said(error)) from error
    found = {name_of(item): item["spec"].get("renewTime") for item in answer.get("items", [])}
    windows = (tag.node for tag in testpods.windows)
    return {node: datetime.fromisoformat(found[node]) for node in windows if found.get(node)}
