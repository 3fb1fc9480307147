"""The readiness gates: each says from the cluster's objects whether a part is ready, and if not, why.

All gates judge the same view of the API server, repeatedly, until each holds or its own time is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from winlab.adapters.kube.workloads import condition, workload_problem
from winlab.addons import record
from winlab.addons.api import Addon, Check, Cluster
from winlab.checks import windows_gates
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed, NotApplicable, Outcome, RowResult, Stage, choose, is_standin, said
from winlab.checks.objects import (
    Objects,
    label,
    name_of,
    node_problem,
    pod_problem,
    pull_trouble,
)
from winlab.checks.report import Report
from winlab.design import cni
from winlab.design.addon import registry
from winlab.design.contract import WindowsFacts
from winlab.design.plan.tags import Tag, running
from winlab.design.system import WINDOWS
from winlab.errors import WinlabError
from winlab.events import Listener

Found = TypeVar("Found")
KINDS = ("nodes", "pods", "daemonsets.apps", "deployments.apps")
SYSTEM = "kube-system"
LOOK = 5.0  # seconds between looks
SLOW_LOOK = 15.0  # seconds between logins to the same Windows node


@dataclass
class View:
    """What one look showed. ``problem`` is why there are no objects."""

    tags: tuple[Tag, ...]
    objects: Objects = field(default_factory=lambda: Objects([]))
    readyz: str = ""
    problem: str = ""
    windows: dict[str, WindowsFacts | str] = field(default_factory=dict)  # by node: what it reported, or why it did not
    kernels: dict[str, dict[str, Any] | str] = field(default_factory=dict)  # the same, for a real Windows


@dataclass(frozen=True)
class Gate:
    """One thing that must be ready. ``seconds`` is how long it may take, by upstream's CI, before it is scaled.

    :param check: returns what was seen, or raises CheckFailed or NotApplicable.
    :param about: kinds and names (without namespaces) of the objects whose events explain a failure.
    """

    id: str
    title: str
    where: str
    seconds: float
    check: Callable[[View], str]
    about: Callable[[View], list[tuple[str, str]]] = lambda _view: []
    asks: Literal["status", "kernel"] | None = None  # what a Windows node is asked
    windows: bool = False  # it is about Windows nodes, whatever is asked
    real: bool = False  # it needs a real Windows


def run(
    lab: str,
    tags: Sequence[Tag],
    access: Access,
    tell: Listener,
    *,
    only: str | None = None,
    timeout: float | None = None,
) -> Report:
    """Wait until the gates hold.

    :param only: identifiers of gates, with commas between; None: all.
    :param timeout: seconds for each gate, instead of its own limit.
    :raises UsageError: *only* names a gate that does not exist.
    """
    chosen = chosen_gates(only)
    gates = [gate for gate in GATES if chosen is None or gate.id in chosen]
    unknown = _AddonGates(tags, access, chosen)
    began, begun = time.time(), access.clock()
    told = Stage(tell, f"{len(gates)} gates", access.clock)
    results = {gate.id: result for gate in gates if (result := _left_out(gate, tags)) is not None}
    looker = _Looker(tags, access)
    while (pending := [gate for gate in gates if gate.id not in results]) or unknown:
        view = looker.look(pending)
        waited = access.clock() - begun
        if found := unknown.find(give_up=waited >= (unknown.seconds * access.scale if timeout is None else timeout)):
            gates += found
            results |= {gate.id: result for gate in found if (result := _left_out(gate, tags)) is not None}
            pending += [gate for gate in found if gate.id not in results]
        last: dict[str, str] = {}
        for gate in pending:
            outcome, detail = _judge(gate, view)
            over = waited >= (gate.seconds * access.scale if timeout is None else timeout)
            if outcome is Outcome.FAILED and not over:
                last[gate.id] = detail
                continue
            if outcome is Outcome.FAILED:
                detail = looker.explain(gate, view, detail)
            results[gate.id] = RowResult(gate.id, gate.title, gate.where, "", outcome, detail, waited)
        if last:
            first = next(iter(last))
            told.say(f"{first}: {last[first]}", len(results) / len(gates))
        if last or unknown:
            access.sleep(LOOK)
    ordered = tuple(results[gate.id] for gate in gates)
    told.conclude(ordered)
    return Report("readiness", lab, ordered, began, access.clock() - begun)


def chosen_gates(only: str | None) -> set[str] | None:
    """The identifiers in the list *only*; an add-on's name stands for all of its rows.

    :raises UsageError: one of them is unknown, or the list is empty.
    """
    return None if only is None else choose([*(gate.id for gate in GATES), *registry()], only)


class _AddonGates:
    """The gates of the cluster's add-ons, while it is not known which add-ons those are; true for that long."""

    seconds = 300.0  # for the API server to answer, as for R1

    def __init__(self, tags: Sequence[Tag], access: Access, chosen: set[str] | None) -> None:
        self._cluster = Cluster(access.kubectl, tuple(tags))
        self._only = None if chosen is None else [name for name in registry() if name in chosen]
        self._unknown = self._only is None or bool(self._only)

    def __bool__(self) -> bool:
        return self._unknown

    def find(self, *, give_up: bool) -> list[Gate]:
        """The gates, once the cluster says which add-ons it has; with *give_up*, one gate that says why it does not."""
        if not self._unknown:
            return []
        try:
            installed = record.read(self._cluster.kubectl)
        except WinlabError as error:
            if not give_up:
                return []
            trouble = said(error)
            self._unknown = False
            return [Gate("add-ons", "the cluster's add-ons are known", SYSTEM, 0, lambda _view: _fail(trouble))]
        self._unknown = False
        found = []
        for name in installed if self._only is None else self._only:
            one = registry()[name]
            if name not in installed:
                found.append(Gate(name, one.summary, SYSTEM, 0, lambda _view: _not_there()))
            elif isinstance(one, Addon):
                rows = enumerate(one.checks(installed[name]), start=1)
                found += [self._gate(name if n == 1 else f"{name}-{n}", check) for n, check in rows]
        return found

    def _gate(self, id_: str, check: Check) -> Gate:
        def look(_view: View) -> str:
            try:
                return check.look(self._cluster)
            except WinlabError as error:
                raise CheckFailed(said(error)) from error

        return Gate(id_, check.title, check.where, check.seconds, look, windows=check.windows, real=check.real)


def _fail(why: str) -> str:
    raise CheckFailed(why)


def _not_there() -> str:
    raise NotApplicable("the lab does not have this add-on")


def _left_out(gate: Gate, tags: Sequence[Tag]) -> RowResult | None:
    windows = running(WINDOWS, tags)
    if (gate.asks or gate.windows) and not windows:
        outcome, why = Outcome.NOT_APPLICABLE, "the lab has no Windows node"
    elif gate.real and any(is_standin(tag) for tag in windows):
        outcome, why = Outcome.REHEARSAL, "the Windows node is the stand-in, which has no Windows kernel"
    else:
        return None
    return RowResult(gate.id, gate.title, gate.where, "", outcome, why)


def _judge(gate: Gate, view: View) -> tuple[Outcome, str]:
    try:
        return Outcome.PASSED, gate.check(view)
    except NotApplicable as reason:
        return Outcome.NOT_APPLICABLE, str(reason)
    except CheckFailed as failed:
        return Outcome.FAILED, str(failed)


class _Looker:
    """Looks at the cluster, and at Windows nodes no more often than necessary."""

    def __init__(self, tags: Sequence[Tag], access: Access) -> None:
        self._tags = tuple(tags)
        self._access = access
        self._told: dict[tuple[str, str], tuple[float, Any]] = {}  # when, and what

    def look(self, gates: Sequence[Gate]) -> View:
        """One look, at only what these gates need."""
        view = View(self._tags)
        try:
            view.readyz = self._access.kubectl.run("get", "--raw=/readyz?verbose")
            view.objects = Objects.look(self._access.kubectl, KINDS)
        except WinlabError as error:
            view.problem = said(error)
        for tag in running(WINDOWS, self._tags):
            if any(gate.asks == "status" for gate in gates):
                view.windows[tag.node] = self._ask(tag, "status", windows_gates.status)
            if any(gate.asks == "kernel" for gate in gates):
                view.kernels[tag.node] = self._ask(tag, "kernel", windows_gates.kernel)
        return view

    def _ask(self, tag: Tag, what: str, ask: Callable[[Access, Tag], Found]) -> Found | str:
        when, known = self._told.get((tag.node, what), (float("-inf"), ""))
        told: Found | str = known
        now = self._access.clock()
        if now - when < SLOW_LOOK:
            return told
        try:
            told = ask(self._access, tag)
        except (WinlabError, CheckFailed) as error:
            told = said(error)
        self._told[tag.node, what] = (now, told)
        return told

    def explain(self, gate: Gate, view: View, detail: str) -> str:
        """A failure with the last warning about each object that it is about."""
        about = gate.about(view)
        if not about:
            return detail
        try:
            found = self._access.kubectl.get("events", "--all-namespaces", "--field-selector=type=Warning")
        except WinlabError:
            return detail
        events = Objects({"kind": "Event", **item} for item in found.get("items", []))
        last = [(name, warnings[-1]) for kind, name in about if (warnings := events.warnings(kind, name))]
        told = [
            f"{name}: {event.get('reason')}: {said(Exception(str(event.get('message', ''))))}" for name, event in last
        ]
        return detail + (f" ({'; '.join(told[:3])})" if told else "")


def _objects(view: View) -> Objects:
    if view.problem:
        raise CheckFailed(f"the API server does not answer: {view.problem}")
    return view.objects


def _api_server(view: View) -> str:
    if view.problem and not view.readyz:
        raise CheckFailed(view.problem)
    return f"/readyz: {sum(line.startswith('[+]') for line in view.readyz.splitlines())} checks hold"


def _etcd(view: View) -> str:
    lines = [line for line in view.readyz.splitlines() if "etcd" in line]
    bad = [line for line in lines if not line.startswith("[+]")]
    if bad or not lines:
        raise CheckFailed("; ".join(bad) or view.problem or "the API server says nothing of etcd")
    return "; ".join(lines)


def _control_plane(view: View) -> str:
    found = [pod for pod in _objects(view).of("Pod", SYSTEM) if label(pod, "tier") == "control-plane"]
    if not found:
        raise CheckFailed("there is no pod of the control plane")
    bad = [f"{name_of(pod)}: {problem}" for pod in found if (problem := pod_problem(pod))]
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"{len(found)} pods are ready"


def _nodes(view: View) -> str:
    bad = []
    for tag in view.tags:
        node = _objects(view).named("Node", tag.node)
        problem = "it has not joined" if node is None else node_problem(node) or _network_problem(node)
        if problem:
            bad.append(f"{tag.node}: {problem}")
    if bad:
        raise CheckFailed("; ".join(bad))
    return f"{len(view.tags)} nodes are Ready"


def _network_problem(node: dict[str, Any]) -> str:
    # only some CNI plugins set this condition
    found = condition(node, "NetworkUnavailable")
    return f"its network is not up: {found.get('message', '')}" if found["status"] == "True" else ""


def _coredns(view: View) -> str:
    found = _objects(view).named("Deployment", "coredns", SYSTEM)
    if found is None:
        raise CheckFailed("there is no Deployment coredns")
    if problem := workload_problem(found):
        raise CheckFailed(problem)
    return f"{found['status'].get('availableReplicas', 0)} pods are available"


def _kube_proxy(view: View) -> str:
    return _daemonsets(view, ("kube-proxy",), "there is no DaemonSet kube-proxy", required=True)


def _cni(view: View) -> str:
    return _daemonsets(view, cni.daemon_sets(), "this lab's CNI is plug-ins alone: what it does shows in Ready")


def _daemonsets(view: View, names: Sequence[str], without: str, *, required: bool = False) -> str:
    found = [item for item in _objects(view).of("DaemonSet") if name_of(item) in names]
    if not found:
        raise CheckFailed(without) if required else NotApplicable(without)
    bad = [f"{name_of(item)}: {problem}" for item in found if (problem := workload_problem(item))]
    if bad:
        raise CheckFailed("; ".join(bad))
    return ", ".join(f"{name_of(item)} {item['status'].get('numberReady', 0)}" for item in found)


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
    Gate("R8", "images can be had", "all nodes", 1200, _pulls, lambda view: [("Pod", n) for n in _pulling(view)]),
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
