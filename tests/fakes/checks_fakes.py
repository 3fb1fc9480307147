"""A lab that is made of plain data: an API server that answers from it, nodes, a network."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import answers
import runs
import yaml

from winlab.adapters.kube.kubectl import Kubectl
from winlab.checks import smoke
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed, Outcome, release_build
from winlab.checks.rows import L1, L2, W1, W2
from winlab.design.contract.call import Call, R
from winlab.design.plan.tags import Tag
from winlab.errors import ClusterError, GuestError

READYZ = "[+]ping ok\n[+]etcd ok\n[+]etcd-readiness ok\nreadyz check passed\n"
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "winlab-smoke"}, "status": {"phase": "Terminating"}}
TAINT = {"key": "os", "value": "windows", "effect": "NoSchedule"}
IMAGE = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"


def tag(node: str, os: str = "linux", role: str = "worker", image: str = "", number: int = 11) -> Tag:
    image = image or ("windows-2022" if os == "windows" else "debian-13")
    inner, outer = f"10.77.0.{number}", f"172.31.240.{number}"
    return Tag(lab="lab", node=node, role=role, os=os, image=image, user="u", address=inner, floating=outer, plan="p")


CONTROLLER = tag("controller-1", role="controller")
LINUX = tag("linux-1", number=51)
WINDOWS = tag("node-1", "windows", number=101)
STANDIN = tag("node-1", "windows", image="windows-rehearsal", number=101)
HYBRID = (CONTROLLER, LINUX, WINDOWS)


def node(of: Tag, number: int = 0) -> dict[str, Any]:
    labels = {"kubernetes.io/os": of.os, "kubernetes.io/hostname": of.node}
    if of.os == "windows":
        labels["node.kubernetes.io/windows-build"] = release_build(of.image) or "10.0.20348"
    return {
        "kind": "Node",
        "metadata": {"name": of.node, "labels": labels},
        "spec": {"podCIDR": f"10.244.{number}.0/24", "taints": [TAINT] if of.os == "windows" else []},
        "status": {
            "addresses": [{"type": "InternalIP", "address": of.address}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://2.3.7", "bootID": "b1"},
            "images": [{"names": [IMAGE]}] if of.os == "linux" else [],
        },
    }


def runtime_class(release: str = "2022") -> dict[str, Any]:
    selector = {"node.kubernetes.io/windows-build": release_build(f"windows-{release}")}
    return {
        "kind": "RuntimeClass",
        "metadata": {"name": f"windows-{release}"},
        "handler": "runhcs-wcow-process",
        "scheduling": {"nodeSelector": selector, "tolerations": [TAINT]},
    }


def ready(status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": "Ready", "status": status, **more}]}


class Cluster(Kubectl):
    """An API server, its scheduler and kubelets. Change its parts to break them."""

    def __init__(self, *tags: Tag) -> None:
        super().__init__(Path("kubectl"), Path("kubeconfig"))
        self.tags = tags
        self.nodes = {of.node: node(of, number) for number, of in enumerate(tags)}
        self.classes = [runtime_class()]
        self.system: list[dict[str, Any]] = []  # pods, DaemonSets, Deployments outside the smoke test
        self.namespace = False  # whether the smoke test's is there
        self.own: dict[str, dict[str, Any]] = {}  # what was applied to it, by kind and name
        self.events: list[dict[str, Any]] = []
        self.calls: list[tuple[str, ...]] = []
        self.readyz = READYZ
        self.down = ""
        self.broken: set[tuple[str, str]] = set()  # pod and address that it can't reach; "*" is any
        self.log = "Started HTTP server on port 80\n"
        self.damage: Callable[[str], str] = lambda answer: answer
        self.pod_status: Callable[[dict[str, Any]], dict[str, Any]] = self.running
        self.renewals = 0
        self.stuck = 0  # looks for which the namespace stays

    def of(self, name: str) -> Tag:
        return next(one for one in self.tags if one.node == name)

    def address(self, pod: str) -> str:
        return f"10.244.9.{(L1, L2, W1, W2).index(pod) + 1}"

    def running(self, pod: dict[str, Any]) -> dict[str, Any]:
        return {"phase": "Running", "podIP": self.address(pod["metadata"]["name"]), **ready()}

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        self.calls.append(words)
        if self.down:
            raise ClusterError("kubectl failed.", why=self.down)
        if words[0] == "apply":
            return self._apply(list(yaml.safe_load_all(stdin or "")))
        if words[:2] == ("delete", "namespace"):
            return ""
        if words[:2] == ("delete", "pods"):
            self.stuck = 0
            return ""
        if words[:2] == ("get", "namespace"):
            return self._still_there()
        if words[0] == "logs":
            return self.log
        if words[1].startswith("--raw="):
            return self._raw(words[1].removeprefix("--raw="))
        return json.dumps(self._list(words[1], words))

    def _apply(self, objects: list[dict[str, Any]]) -> str:
        self.namespace = True
        for item in objects:
            key = f"{item['kind']} {item['metadata']['name']}"
            if item["kind"] == "Service":
                number = len(self.own)
                item["spec"]["clusterIP"] = f"10.96.0.{number}"
                item["spec"]["ports"][0]["nodePort"] = 30000 + number
            if item["kind"] == "Pod":
                spec = item["spec"]
                if "runtimeClassName" in spec:
                    spec.setdefault("tolerations", []).append(TAINT)
                spec["nodeName"] = spec["nodeSelector"]["kubernetes.io/hostname"]
                item["status"] = self.pod_status(item)
            self.own[key] = item
        return ""

    def _still_there(self) -> str:
        if not self.namespace:
            return ""
        if self.stuck:
            self.stuck -= 1
            return json.dumps(NAMESPACE)
        self.namespace = False
        self.own = {}
        return ""

    def _list(self, what: str, words: tuple[str, ...]) -> dict[str, Any]:
        if what == "node":
            return self.nodes[words[2]]
        if what.startswith("leases"):
            self.renewals += 1
            found = [
                {
                    "metadata": {"name": name},
                    "spec": {"renewTime": f"2026-11-21T10:00:{self.renewals % 60:02d}.000000Z"},
                }
                for name in self.nodes
            ]
            return {"items": found}
        if what == "events":
            return {"items": self.events}
        if "--namespace=winlab-smoke" in words:
            return {"items": [*self.own.values(), *self.events]}
        return {"items": [*self.nodes.values(), *self.classes, *self.system]}

    def _raw(self, path: str) -> str:
        if path.startswith("/readyz"):
            return self.readyz
        pod = path.split("/pods/")[1].split(":")[0]
        if (pod, "api") in self.broken:
            raise ClusterError("kubectl failed.", why="error trying to reach service: i/o timeout")
        rest = urlsplit(path.split("/proxy/")[1])
        return self._answer(pod, rest.path, parse_qs(rest.query))

    def _answer(self, pod: str, path: str, query: dict[str, list[str]]) -> str:
        """The answer of agnhost in *pod*."""
        if path == "hostname":
            return pod
        if path == "echo":
            return query["msg"][0]
        assert path == "dial"
        host = query["host"][0]
        if {(pod, host), (pod, "*")} & self.broken:
            return json.dumps({"errors": ["dial tcp: i/o timeout"]})
        target = self._who(pod, host)
        if target is None:
            raise ClusterError("kubectl failed.", why="Error from server (BadRequest): unknown reason")
        request = urlsplit(unquote(query["request"][0]) if "%" not in query["request"][0] else query["request"][0])
        answers = [self._answer(target, request.path, parse_qs(request.query))] * int(query["tries"][0])
        return json.dumps({"responses": [self.damage(answer) for answer in answers]})

    def _who(self, pod: str, host: str) -> str | None:
        if host == "127.0.0.1":
            return pod
        for key, item in self.own.items():
            kind, name = key.split()
            if kind == "Pod" and host == self.address(name):
                return name
            if kind == "Service" and host in (item["spec"]["clusterIP"], f"{name}.winlab-smoke.svc.cluster.local"):
                return name
        return None

    def node_port(self, url: str) -> str:
        port = int(urlsplit(url).netloc.split(":")[1])
        return next(
            item["metadata"]["name"]
            for key, item in self.own.items()
            if key.startswith("Service ") and item["spec"]["ports"][0]["nodePort"] == port
        )


CLOCK = runs.Clock()  # tests/unit/checks/conftest.py makes a new one for each test, which waits use, too


def access(cluster: Cluster, **more: Any) -> Access:
    """Ways to reach the fake lab; each can be replaced."""

    def in_pod(namespace: str, pod: str, command: list[str]) -> str:
        return "app version 2.63.0\n" if "--version" in command else ""

    def execute(to: Tag, command: list[str]) -> str:
        raise GuestError("A command ended with exit code 28.", why="curl: (28) timed out")

    parts: dict[str, Any] = {
        "kubectl": cluster,
        "fetch": cluster.node_port,
        "reaches": lambda host, port: True,
        "in_pod": in_pod,
        "execute": execute,
        "script": lambda to, name, settings=None: {
            "containerd": {"service": "running"},
            "kubelet": {"service": "running"},
        },
        "routes": lambda: {item["spec"]["podCIDR"]: cluster.of(name).address for name, item in cluster.nodes.items()},
        "clock": CLOCK.monotonic,
    }
    given = {**parts, **more}

    def script(to: Tag, call: Call[R]) -> R:
        return answers.result(call, given["script"](to, call.script, call.settings(to.os)), to.node)

    return Access(**{**given, "script": script})


def refuse(*_args: Any) -> Any:
    raise CheckFailed("it does not answer")


def rows(cluster: Cluster, only: str | None = None, keep: bool = False, **more: Any) -> dict[str, tuple[Outcome, str]]:
    """The smoke test of the fake lab: how each row ended, and what was seen."""
    report = smoke.run("lab", cluster.tags, access(cluster, **more), lambda _event: None, only=only, keep=keep)
    return {result.id: (result.outcome, result.detail) for result in report.results}
