"""Steps that wait for Kubernetes itself: every node Ready, cluster DNS available."""

from __future__ import annotations

import time
from typing import Any

from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan.model import NodePlan
from winlab.engine.engine import Step
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import Context, linux_nodes, pods

POLL = 3.0
# From "joined" to Ready; on Windows an image of 300 MB may have to come first (facts: kubernetes-windows.md, D1)
LIMIT = {"linux": 300.0, "windows": 1200.0}
DNS_LIMIT = 300.0


def steps(context: Context) -> list[Step]:
    """One for each node, and one for cluster DNS, if that is the lab's own."""
    found = [_ready(context, node) for node in context.plan.nodes]
    return found if context.plan.joins else [*found, _dns(context)]


def _ready(context: Context, node: NodePlan) -> Step:
    def look() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = Kubectl.of(context.state).get("node", node.name)
        except WinlabError:
            return None
        return found

    def run(progress: Progress) -> None:
        begun = time.monotonic()
        while True:
            found = look()
            if found is not None and diagnose.is_ready(found):
                return
            why = "the API server does not answer" if found is None else diagnose.brief(found)
            progress.say(f"waiting for {node.name} to be Ready: {why}")
            if time.monotonic() - begun > LIMIT[node.os] * context.scale:
                with linux_nodes.connected(context, node) as there:
                    facts = diagnose.explain(Kubectl.of(context.state), there, node.name)
                raise ClusterError(
                    f"'{node.name}' does not become Ready.",
                    why=facts,
                    cure="Mend the cause and run the same command again; or destroy the lab and create it anew.",
                    evidence=f"winlab logs {node.name}; winlab kubectl -- describe node {node.name}",
                )
            time.sleep(POLL)

    def done() -> bool:
        found = look()
        return found is not None and diagnose.is_ready(found)

    last = f"proxy {node.name}" if node.os == "windows" else pods.name(node.name)
    return Step(f"ready {node.name}", run, done, (last, pods.ROUTES), usual=15 * context.scale)


def _dns(context: Context) -> Step:
    def available() -> tuple[bool, str]:
        found = Kubectl.of(context.state).get("deployment", "coredns", "--namespace=kube-system")
        rows = {row["type"]: row for row in found.get("status", {}).get("conditions", [])}
        row = rows.get("Available", {})
        return row.get("status") == "True", str(row.get("message", "it has not started yet"))

    def run(progress: Progress) -> None:
        begun = time.monotonic()
        while True:
            try:
                there, why = available()
            except ClusterError as error:  # a busy API server: it starts again, and is asked again
                there, why = False, error.what
            if there:
                return
            progress.say(f"waiting for cluster DNS: {why}")
            if time.monotonic() - begun > DNS_LIMIT * context.scale:
                raise ClusterError(
                    "Cluster DNS does not become available.",
                    why=why,
                    evidence="winlab kubectl -- -n kube-system describe pods -l k8s-app=kube-dns",
                )
            time.sleep(POLL)

    def done() -> bool:
        try:
            return available()[0]
        except WinlabError:
            return False

    first = next(node for node in context.plan.nodes if node.role == "controller")
    return Step("cluster DNS", run, done, (f"ready {first.name}",), usual=10 * context.scale)
