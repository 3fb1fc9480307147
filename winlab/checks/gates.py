"""The readiness gates: each says from the cluster's objects whether a part is ready, and if not, why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from winlab.adapters.kube.workloads import condition, workload_problem
from winlab.checks import objects, windows_gates
from winlab.checks.model import CheckFailed, NotApplicable
from winlab.checks.objects import Objects, label, name_of, node_problem, pod_problem, pull_trouble
from winlab.design import cni
from winlab.design.contract.on_windows import WindowsFacts
from winlab.design.plan.tags import Tag, running
from winlab.design.system import WINDOWS

KINDS = ("nodes", "pods", "daemonsets.apps", "deployments.apps")
SYSTEM = "kube-system"


@dataclass
class View:
    """The result of one look. ``problem`` is why there are no objects."""

    tags: tuple[Tag, ...]
    objects: Objects = field(default_factory=lambda: Objects([]))
    readyz: str = ""
    problem: str = ""
    in_programs: bool = False  # the distribution's own program has the control plane and kube-proxy: there are no pods
    idle: dict[str, str] = field(default_factory=dict)  # nodes whose machines don't run, with their states
    windows: dict[str, WindowsFacts | str] = field(default_factory=dict)  # by node: its report, or why there is none
    kernels: dict[str, dict[str, Any] | str] = field(default_factory=dict)  # the same, for a real Windows


@dataclass(frozen=True)
class Gate:
    """One thing that must be ready.

    :param silence: seconds on hardware without progress in the cluster after which it has failed.
    :param check: returns what was seen, or raises CheckFailed or NotApplicable.
    :param about: kinds and names (without namespaces) of the objects whose events explain a failure.
    """

    id: str
    title: str
    where: str
    silence: float
    check: Callable[[View], str]
    about: Callable[[View], list[tuple[str, str]]] = lambda _view: []
    asks: Literal["status", "kernel"] | None = None  # what is read from Windows nodes
    windows: bool = False  # it is about Windows nodes, although nothing is read from them
    real: bool = False  # it needs real Windows


def signs(view: View) -> set[str]:
    """What changes in a view while the cluster makes progress; see :func:`winlab.checks.objects.signs`."""
    changing = objects.signs(view.objects.items)
    changing |= {line for line in view.readyz.splitlines() if line.startswith("[+]")}
    for node, facts in view.windows.items():
        if not isinstance(facts, str):
            services = (facts.containerd.service, facts.kubelet.service, facts.proxy.service)
            changing.add(f"{node} services {services}")
    return changing | {
        f"{node} kernel {kernel}" for node, kernel in view.kernels.items() if not isinstance(kernel, str)
    }


def idle(gate: Gate, view: View) -> str:
    """Which nodes that a gate is about do not run, so that waiting can't help, and the cure; empty if all run."""
    off = [tag for tag in view.tags if tag.node in view.idle]
    if gate.where == "controllers":
        off = [tag for tag in off if tag.role == "controller"]
    elif gate.where == WINDOWS_NODES:
        off = running(WINDOWS, off)
    states = ", ".join(f"{tag.node} is {view.idle[tag.node]}" for tag in off)
    return f"{states}: 'winlab start --lab {off[0].lab}' starts and resumes nodes" if off else ""


def _objects(view: View) -> Objects:
    if view.problem:
        raise CheckFailed(f"the API server does not answer: {view.problem}")
    return view.objects


def _api_server(view: View) -> str:
    if view.problem and not view.readyz:
        raise CheckFailed(view.problem)
    return f"/readyz: {sum(line.startswith('[+]') for line in view.readyz.splitlines())} checks pass"


def _etcd(view: View) -> str:
    lines = [line for line in view.readyz.splitlines() if "etcd" in line]
    bad = [line for line in lines if not line.startswith("[+]")]
    if bad or not lines:
        raise CheckFailed("; ".join(bad) or view.problem or "the API server does not mention etcd")
    return "; ".join(lines)


def _control_plane(view: View) -> str:
    pods = [pod for pod in _objects(view).of("Pod", SYSTEM) if label(pod, "tier") == "control-plane"]
    if not pods:
        if view.in_programs:
            raise NotApplicable("this lab's control plane runs in no pods: R1 and R2 show whether it works")
        raise CheckFailed("the control plane has no pods")
    bad = [f"{name_of(pod)}: {problem}" for pod in pods if (problem := pod_problem(pod))]
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"{len(pods)} pods are ready"


def _nodes(view: View) -> str:
    bad = []
    for tag in view.tags:
        node = _objects(view).named("Node", tag.node)
        problem = "it has not joined" if node is None else node_problem(node) or _network_problem(node)
        if state := view.idle.get(tag.node):  # the API server calls it Ready for a while
            problem = f"it is {state}"
        if problem:
            bad.append(f"{tag.node}: {problem}")
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"{len(view.tags)} nodes are Ready"


def _network_problem(node: dict[str, Any]) -> str:
    # only some CNI plugins set this condition
    unavailable = condition(node, "NetworkUnavailable")
    return f"its network is not up: {unavailable.get('message', '')}" if unavailable["status"] == "True" else ""


def _coredns(view: View) -> str:
    deployment = _objects(view).named("Deployment", "coredns", SYSTEM)
    if deployment is None:
        raise CheckFailed("there is no Deployment coredns")
    if problem := workload_problem(deployment):
        raise CheckFailed(problem)
    return f"{deployment['status'].get('availableReplicas', 0)} pods are available"


def _kube_proxy(view: View) -> str:
    return _daemonsets(view, ("kube-proxy",), "there is no DaemonSet kube-proxy", required=not view.in_programs)


def _cni(view: View) -> str:
    return _daemonsets(view, cni.daemon_sets(), "this lab's CNI has no DaemonSet: R4 shows whether it works")


def _daemonsets(view: View, names: Sequence[str], without: str, *, required: bool = False) -> str:
    daemonsets = [item for item in _objects(view).of("DaemonSet") if name_of(item) in names]
    if not daemonsets:
        raise CheckFailed(without) if required else NotApplicable(without)
    bad = [f"{name_of(item)}: {problem}" for item in daemonsets if (problem := workload_problem(item))]
    if bad:
        raise CheckFailed("; ".join(bad))
    return ", ".join(f"{name_of(item)} {item['status'].get('numberReady', 0)}" for item in daemonsets)


def _pulls(view: View) -> str:
    pods = _objects(view).of("Pod")
    bad = [f"{name_of(pod)}: {problem}" for pod in pods if (problem := pull_trouble(pod))]
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"no image of {len(pods)} pods is missing"


def _bad_nodes(view: View) -> list[tuple[str, str]]:
    return [("Node", name_of(node)) for node in view.objects.of("Node") if node_problem(node)]


def _bad_pods(prefixes: Sequence[str]) -> Callable[[View], list[tuple[str, str]]]:
    return lambda view: [
        ("Pod", name_of(pod))
        for pod in view.objects.of("Pod")
        if name_of(pod).startswith(tuple(prefixes)) and pod_problem(pod)
    ]


WINDOWS_NODES = "Windows nodes"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
GATES = (
    Gate("R1", "API server is ready", "controllers", 300, _api_server),
    Gate("R2", "etcd answers", "controllers", 300, _etcd),
    Gate("R3", "control plane's pods are ready", "controllers", 300, _control_plane, _bad_pods(CONTROL_PLANE)),
    Gate("R4", "every node is Ready", "all nodes", 1200, _nodes, _bad_nodes),
    Gate("R5", "CoreDNS is available", SYSTEM, 600, _coredns, _bad_pods(("coredns",))),
    Gate("R6", "kube-proxy runs on Linux", SYSTEM, 600, _kube_proxy, _bad_pods(("kube-proxy",))),
    Gate("R7", "CNI runs on every node", "all nodes", 600, _cni, lambda v: _bad_pods(cni.daemon_sets())(v)),
    Gate("R8", "images can be pulled", "all nodes", 1200, _pulls, lambda view: [("Pod", n) for n in _pulling(view)]),
    Gate(
        "R9",
        "containerd and kubelet run",
        WINDOWS_NODES,
        600,
        lambda v: windows_gates.services(v.windows),
        asks="status",
    ),
    Gate(
        "R10",
        "kube-proxy runs",
        WINDOWS_NODES,
        1200,
        lambda v: windows_gates.proxy(v.windows),
        asks="status",
        real=True,
    ),
    Gate(
        "R11",
        "HNS, one kubelet",
        WINDOWS_NODES,
        1200,
        lambda v: windows_gates.network(v.kernels),
        asks="kernel",
        real=True,
    ),
)


def _pulling(view: View) -> list[str]:
    return [name_of(pod) for pod in view.objects.of("Pod") if pull_trouble(pod)]
