"""Steps that wait for Kubernetes itself: every node Ready, cluster DNS available."""

from __future__ import annotations

from typing import Any

from winlab.adapters.kube import diagnose, identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError, logs
from winlab.events import Progress
from winlab.steps import controllers
from winlab.steps.crashed import require_no_crash
from winlab.steps.states import DNS, PODS_CONNECTED, READY, ROUTES

DNS_SILENCE = 300.0  # seconds on hardware for which cluster DNS may report the same


def steps(run: Run) -> list[Step]:
    """One step for each node, and one for cluster DNS if the lab has its own."""
    nodes_ready = [_ready(run, node) for node in run.plan.members]
    return nodes_ready if run.plan.joins else [*nodes_ready, _dns(run)]


def _ready(run: Run, node: NodePlan) -> Step:
    def ask() -> dict[str, Any] | None:
        try:
            node_object: dict[str, Any] = Kubectl.of(run.folder).get("node", node.name)
        except WinlabError:
            return None
        return node_object

    def work(progress: Progress) -> None:
        signs: frozenset[str] = frozenset()

        def look() -> Met[None] | Waiting:
            nonlocal signs
            if node.system.tells_crash:
                require_no_crash(run.on(node).conn, run.lab, node, progress)
            node_object = ask()
            if node_object is None:
                why = "the API server does not answer"
            elif diagnose.is_ready(node_object):
                if run.plan.cluster.identifies:
                    _serve(run, node, progress)
                return Met(None)
            else:
                why, signs = diagnose.brief(node_object), diagnose.signs(node_object)
            return Waiting(f"waiting for {node.name} to be Ready: {why}", signs)

        limit = run.pace.usual(node.system.ready_silence)
        controllers.until(run, look, progress, lambda _: _not_ready(run, node), stall=limit)

    def done() -> bool:
        node_object = ask()
        if node_object is None or not diagnose.is_ready(node_object):
            return False
        return not (
            run.plan.cluster.identifies
            and identity.serving_requests(Kubectl.of(run.folder), node.name, [node.address])[0]
        )

    after = [PODS_CONNECTED(run.lab, node.name), ROUTES(run.lab)]
    return Step(READY(run.lab, node.name), work, done, after, usual=run.pace.usual(15))


def _serve(run: Run, node: NodePlan, progress: Progress) -> None:
    """Approve the certificate with which the node's kubelet serves logs and exec, if the cluster has it ask for one.

    :raises ClusterError: the API server does not answer.
    """
    count, others = identity.approve_serving(Kubectl.of(run.folder), node.name, [node.address])
    if count:
        progress.say(f"the certificate with which {node.name} serves logs and exec is approved")
    for reason in others:
        progress.say(f"a certificate of {node.name} is not approved: {reason}")


def _not_ready(run: Run, node: NodePlan) -> ClusterError:
    with run.node(node) as there:
        facts = diagnose.explain(Kubectl.of(run.folder), there, node.name)
    return ClusterError(
        f"'{node.name}' does not become Ready.",
        why=facts,
        cure="Fix the cause and run the same command again; or destroy the lab and create it again.",
        evidence=f"{logs(node.name, run.lab)}; winlab kubectl --lab {run.lab} -- describe node {node.name}",
    )


def _dns(run: Run) -> Step:
    def ask() -> dict[str, Any]:
        deployment = Kubectl.of(run.folder).get("deployment", "coredns", "--namespace=kube-system")
        status: dict[str, Any] = deployment.get("status", {})
        return status

    def available(status: dict[str, Any]) -> tuple[bool, str]:
        rows = {row["type"]: row for row in status.get("conditions", [])}
        row = rows.get("Available", {})
        return row.get("status") == "True", str(row.get("message", "it has not started yet"))

    def work(progress: Progress) -> None:
        sign, why = "", ""

        def look() -> Met[None] | Waiting:
            nonlocal sign, why
            try:
                status = ask()
            except ClusterError as error:  # the API server is busy or restarting: ask it again
                why = error.what
            else:
                is_available, why = available(status)
                if is_available:
                    return Met(None)
                counts = {key: value for key, value in status.items() if isinstance(value, int)}
                sign = f"{why} {sorted(counts.items())}"
            return Waiting(f"waiting for cluster DNS: {why}", sign)

        def give_up(_: Waiting) -> ClusterError:
            return ClusterError(
                "Cluster DNS does not become available.",
                why=why,
                evidence="winlab kubectl -- -n kube-system describe pods -l k8s-app=kube-dns",
            )

        controllers.until(run, look, progress, give_up, stall=run.pace.usual(DNS_SILENCE))

    def done() -> bool:
        try:
            return available(ask())[0]
        except WinlabError:
            return False

    first = next(node for node in run.plan.nodes if node.role == "controller")
    return Step(DNS(run.lab), work, done, [READY(run.lab, first.name)], usual=run.pace.usual(10))
