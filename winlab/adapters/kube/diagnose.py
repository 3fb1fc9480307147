"""Why a node does not become Ready: read from its conditions, its events, and the logs in the guest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract import on_both
from winlab.errors import WinlabError

LINES = 8  # of each log
EVENTS = 5
TELLING = ("error", "fail", "unable", "refused", "denied", "not found", "timed out", "panic")


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a Node object says that it is Ready."""
    return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions(node))


def conditions(node: dict[str, Any]) -> list[dict[str, str]]:
    """A Node object's conditions."""
    rows = _rows(node, "conditions")
    return [row for row in rows if "type" in row and "status" in row]


def _rows(node: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """A list of objects in a Node's status. An external cluster may send anything there."""
    status = node.get("status")
    rows = status.get(name) if isinstance(status, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def brief(node: dict[str, Any]) -> str:
    """Why a Node object is not Ready, in one line; empty if it is."""
    for row in conditions(node):
        if row["type"] == "Ready" and row["status"] != "True":
            return f"{row.get('reason', 'NotReady')}: {row.get('message', '')}".strip(": ")
    return "" if is_ready(node) else "its kubelet has not reported yet"


def signs(node: dict[str, Any]) -> frozenset[str]:
    """What changes in a Node object while its kubelet makes progress: conditions, and the images on the node.

    The times of its reports don't count: a kubelet that repeats the same report forever makes no progress.
    """
    rows = {f"{row['type']}={row['status']} {row.get('reason')} {row.get('message')}" for row in conditions(node)}
    named = [row.get("names") for row in _rows(node, "images")]
    images = {str(name) for names in named if isinstance(names, list) for name in names}
    return frozenset(rows | images)


def pods(kubectl: Kubectl) -> frozenset[str]:
    """What changes in the cluster's pods while they make progress; empty while the API server does not answer.

    The number of restarts does not count: a pod that fails repeatedly makes no progress.
    """
    try:
        rows = kubectl.get("pods", "--all-namespaces")["items"]
    except WinlabError:
        return frozenset()
    return frozenset(f"{row['metadata']['name']} {_container_states(row)}" for row in rows)


def _container_states(pod: dict[str, Any]) -> str:
    status = pod.get("status", {})
    rows = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    states = (
        f"{row['name']}={kind} {state.get('reason', '')}"
        for row in rows
        for kind, state in row.get("state", {}).items()
    )
    return " ".join((status.get("phase", ""), *states))


def explain(kubectl: Kubectl, guest: NodeScripts, node: str) -> str:
    """All that is known about a node that is not Ready, one fact per line. What can't be read is left out."""
    facts: list[str] = []
    try:
        node_object = kubectl.get("node", node)
        facts += [
            f"condition {row['type']}={row['status']}: {row.get('message', '')}"
            for row in conditions(node_object)
            if (row["type"] == "Ready") != (row["status"] == "True")
        ]
        selector = f"--field-selector=involvedObject.name={node},type=Warning"
        events = kubectl.get("events", "--all-namespaces", selector, "--sort-by=.metadata.creationTimestamp")["items"]
        facts += [f"event {row.get('reason', '')}: {row.get('message', '')}" for row in events[-EVENTS:]]
    except WinlabError as error:
        facts.append(f"the API server: {error.what}")
    try:
        logs = guest.run(on_both.Logs()).logs
        for name, text in logs.items():
            facts += [f"{name}: {line}" for line in telling(text.splitlines())]
    except WinlabError as error:
        facts.append(f"the node: {error.what}")
    return "\n".join(facts)


def telling(lines: Iterable[str]) -> list[str]:
    """The last lines that look like errors."""
    errors = [line.strip()[:300] for line in lines if any(word in line.lower() for word in TELLING)]
    return errors[-LINES:]
