"""The cluster's objects from one request to the API server, and what is wrong with each. Pure except for the request.

kubectl takes seconds where the controllers are emulated, so one call reads all kinds that are needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.workloads import condition, reason

Object = dict[str, Any]
OS = "kubernetes.io/os"
BUILD = "node.kubernetes.io/windows-build"
HOSTNAME = "kubernetes.io/hostname"
# reasons of a waiting container: k8s.io/kubernetes/pkg/kubelet/images/types.go
PULL_TROUBLE = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError")


class Objects:
    """Objects of several kinds."""

    def __init__(self, items: Iterable[Object]) -> None:
        self.items = list(items)

    @classmethod
    def look(cls, kubectl: Kubectl, kinds: Sequence[str], namespace: str | None = None) -> Objects:
        """Ask the API server for all objects of these kinds, in one namespace or in all.

        :raises ClusterError: it does not answer.
        """
        where = [f"--namespace={namespace}"] if namespace else ["--all-namespaces"]
        return cls(kubectl.get(",".join(kinds), *where).get("items", []))

    def of(self, kind: str, namespace: str | None = None) -> list[Object]:
        """The objects of one kind (``Node``)."""
        return [
            item
            for item in self.items
            if item.get("kind") == kind and namespace in (None, item["metadata"].get("namespace"))
        ]

    def named(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None."""
        return next((item for item in self.of(kind, namespace) if name_of(item) == name), None)

    def warnings(self, kind: str, name: str) -> list[Object]:
        """The warning events about an object, the newest last."""
        about = {"kind": kind, "name": name}
        warnings = [
            event
            for event in self.of("Event")
            if event.get("type") == "Warning" and about.items() <= event.get("involvedObject", {}).items()
        ]
        return sorted(warnings, key=_when)


def signs(items: Iterable[Object]) -> set[str]:
    """What changes in objects while a cluster makes progress: texts, of which there is a limited number.

    Times and counts of failures are left out: what fails repeatedly makes no progress. A pod and its replacement by the
    controller count as the same.
    """
    return {f"{_about(item)} {sign}" for item in items for sign in _signs(item)}


def _about(item: Object) -> str:
    about = item.get("involvedObject") or {**item.get("metadata", {}), "kind": item.get("kind")}
    return f"{about.get('kind')} {about.get('generateName') or about.get('name')}"


def _signs(item: Object) -> Iterable[str]:
    status = item.get("status", {})
    match item.get("kind"):
        case "Event":
            yield f"event {item.get('reason')}"
        case "Node":
            yield from diagnose.signs(item)
        case "Namespace":  # while it is being deleted, its conditions count what is left in it
            yield from (f"{row.get('type')} {row.get('message')}" for row in status.get("conditions", []))
        case "Pod":
            yield str(status.get("phase"))
            yield from (f"{row.get('type')}={row.get('status')}" for row in status.get("conditions", []))
            for row in _containers(item):
                yield from (
                    f"{row.get('name')}={kind} {state.get('reason')}" for kind, state in row.get("state", {}).items()
                )
        case _:
            yield from (f"{key}={count}" for key, count in status.items() if isinstance(count, int))


def _containers(pod: Object) -> list[Object]:
    status = pod.get("status", {})
    return [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]


def _when(event: Object) -> str:
    timestamp = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return str(timestamp or "")


def name_of(item: Object) -> str:
    """An object's name."""
    return str(item["metadata"]["name"])


def label(item: Object, key: str) -> str:
    """The value of a label; empty if there is none."""
    return str(item["metadata"].get("labels", {}).get(key, ""))


def node_problem(node: Object) -> str:
    """Why a node is not Ready; empty if it is."""
    ready = condition(node, "Ready")
    if ready["status"] == "True":
        return ""
    return reason(ready)


def pod_problem(pod: Object) -> str:
    """Why a pod is not running and ready; empty if it is."""
    if condition(pod, "Ready")["status"] == "True":
        return ""
    status = pod.get("status", {})
    for container in _containers(pod):
        for state in ("waiting", "terminated"):
            if details := container.get("state", {}).get(state):
                return reason(details)
    scheduled = condition(pod, "PodScheduled")
    if scheduled["status"] == "False":
        return reason(scheduled)
    return str(status.get("phase", "Unknown"))


def pull_trouble(pod: Object) -> str:
    """Why an image of a pod can't be pulled; empty if there is no error."""
    for container in _containers(pod):
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in PULL_TROUBLE:
            return f"{container.get('image', '')}: {reason(waiting)}"
    return ""
