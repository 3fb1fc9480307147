"""The pods and services of the smoke test: where each runs, and the manifests. Pure.

There are two pods for each system, on different nodes if there are two. Each has its own service, so that an answer
shows which pod sent it. The image is agnhost, Kubernetes' own for such tests. Only its ``netexec`` (a server) and
``connect`` are used: the Windows image, and one built from source, need not have a shell or another program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from winlab.checks.objects import BUILD, HOSTNAME, OS, Object, label, name_of
from winlab.design.catalog import versions
from winlab.design.plan import tags
from winlab.design.plan.tags import Tag
from winlab.design.render.runtime_classes import HANDLER
from winlab.design.system import SYSTEMS, Taint

NAMESPACE = "winlab-smoke"
ACCOUNT = "smoke"
PREFIX = "smoke-"  # of the pods' names; with it the longest has 15 characters, as many as a name of Windows can have
PORT = 80
AGNHOST = "e2e-test-images/agnhost:"
POD_LABEL = "winlab-smoke-pod"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class Seat:
    """A pod's name and its node."""

    pod: str
    tag: Tag

    @property
    def node(self) -> str:
        """The node's name."""
        return self.tag.node


def seats(nodes: Sequence[Tag]) -> list[Seat]:
    """Where the pods run: ``smoke-linux-1`` and ``smoke-linux-2``, ``smoke-windows-1`` and ``smoke-windows-2``.

    Workers come before controllers. If a system has only one node, both pods run there.
    """
    placed = []
    for system in SYSTEMS:
        if hosts := sorted(tags.running(system, nodes), key=lambda tag: (tag.role == "controller", tag.node)):
            first, second = (hosts * 2)[:2]
            placed += [Seat(f"{PREFIX}{system.name}-1", first), Seat(f"{PREFIX}{system.name}-2", second)]
    return placed


def taint(of: Taint) -> Object:
    """A node's taint as the API has it; also the toleration for it."""
    return {"key": of.key, "value": of.value, "effect": of.effect}


def image(nodes: Sequence[Object]) -> str:
    """The agnhost image: one that a node already has, so that nothing is pulled, otherwise the known-good one.

    :raises UsageError: no node has one, and the catalog has none for the nodes' version of Kubernetes.
    """
    references = sorted(
        str(name)
        for node in nodes
        for entry in node.get("status", {}).get("images", [])
        for name in entry.get("names") or []
        if AGNHOST in name
    )
    if references:
        return references[-1]
    kubelet = nodes[0].get("status", {}).get("nodeInfo", {}).get("kubeletVersion") if nodes else None
    return f"registry.k8s.io/{AGNHOST}{versions.get(kubelet, allow_untested=True).agnhost}"


def runtime_class(node: Object, classes: Sequence[Object]) -> Object | None:
    """The RuntimeClass for pods on a Windows node of this build; None if there is none."""
    for candidate in classes:
        selector = candidate.get("scheduling", {}).get("nodeSelector", {})
        if candidate.get("handler") == HANDLER and selector.get(BUILD, label(node, BUILD)) == label(node, BUILD):
            return candidate
    return None


def base() -> list[Object]:
    """The namespace, and the account of its pods.

    Pods created together with their namespace come before its default account, so they need one of their own.
    """
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(ACCOUNT)},
    ]


def manifests(seat: Seat, node: Object, reference: str, classes: Sequence[Object]) -> list[Object]:
    """The service and the pod of one seat."""
    spec: Object = {
        "os": {"name": seat.tag.os},
        "nodeSelector": {HOSTNAME: label(node, HOSTNAME) or seat.node},
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "agnhost",
                "image": reference,
                "imagePullPolicy": "IfNotPresent",
                "args": ["netexec", f"--http-port={PORT}"],
                "ports": [{"containerPort": PORT}],
                # on a busy node the server listens some time after the pod runs
                "readinessProbe": {
                    "httpGet": {"path": "/hostname", "port": PORT},
                    "periodSeconds": 3,
                    "timeoutSeconds": 10,
                },
            }
        ],
    }
    of = seat.tag.system
    if of.taint is None:
        spec["tolerations"] = [{"key": CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"}]
    elif matching := runtime_class(node, classes):
        spec["runtimeClassName"] = name_of(matching)  # admission adds its toleration and node selector
    else:
        spec["nodeSelector"][OS] = of.name
        spec["tolerations"] = [taint(of.taint)]
    service = {
        "type": "NodePort",
        "selector": {POD_LABEL: seat.pod},
        "ports": [{"port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(seat.pod), "spec": service},
        {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(seat.pod, {POD_LABEL: seat.pod}), "spec": spec},
    ]


def _metadata(name: str, labels: dict[str, str] | None = None) -> Object:
    return {
        "name": name,
        "namespace": NAMESPACE,
        "labels": {"app.kubernetes.io/managed-by": "winlab", **(labels or {})},
    }
