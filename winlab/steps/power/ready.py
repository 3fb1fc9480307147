"""The step that waits until a started or resumed machine is a Ready node again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from winlab import documents
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.engine import wait
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, logs
from winlab.events import Progress
from winlab.steps.power.answer import BOOTS
from winlab.steps.power.subject import Subject
from winlab.steps.states import ANSWERING, READY_AGAIN

# After so many seconds without a renewed lease a node is no longer Ready (kube-controller-manager,
# --node-monitor-grace-period; 40 s before Kubernetes 1.32)
GRACE = 40.0
SLACK = 5.0  # seconds that clocks may differ


def step(subject: Subject, kubectl: Kubectl, after: Iterable[State] = (), *, boots: bool = False) -> Step:
    """The step that waits until the node is Ready, by what its kubelet has reported since the machine's start.

    The API server still has the reports from before: without them a node that is off counts as Ready for a while.
    """

    def work(progress: Progress) -> None:
        signs: frozenset[str] = frozenset()

        def look() -> Met[None] | Waiting:
            nonlocal signs
            try:
                why, signs = _lacking(subject, kubectl, signs)
            except ClusterError:
                why = "the API server does not answer"
            return Waiting(f"waiting for {subject.name} to be Ready: {why}", signs) if why else Met(None)

        stall = subject.lab.pace.usual(subject.machine.tag.system.ready_silence)
        wait.until(look, progress, lambda _: _not_ready(subject, kubectl), stall=stall)

    def done() -> bool:
        try:
            return not _lacking(subject, kubectl, frozenset())[0]
        except ClusterError:
            return False

    needs, usual = [subject.at(ANSWERING), *after], subject.lab.pace.usual(30)
    return Step(subject.at(READY_AGAIN), work, done, needs, usual=usual, case=BOOTS if boots else "")


def _lacking(subject: Subject, kubectl: Kubectl, signs: frozenset[str]) -> tuple[str, frozenset[str]]:
    """What is missing until the node is Ready, and what shows progress; the first is empty if nothing is.

    :param signs: those that were seen before.
    :raises ClusterError: the API server does not answer.
    """
    node = _object(kubectl, "node", subject.name)
    if node is None:
        return "", signs  # it never joined: there is nothing to wait for
    lease = _object(kubectl, "lease", subject.name, "--namespace=kube-node-lease") or {}
    signs = diagnose.signs(node)
    since = (time.time() - GRACE if subject.since is None else subject.since) + subject.skew
    spec = lease.get("spec")
    if _seconds(spec.get("renewTime") if isinstance(spec, dict) else None) < since - SLACK:
        return "waiting for the kubelet's first heartbeat", signs | {"no lease"}
    if subject.booted and _reported(node) < since - SLACK:
        return "its kubelet has not reported since the start", signs | {"no report"}
    return diagnose.brief(node), signs


def _object(kubectl: Kubectl, *words: str) -> dict[str, Any] | None:
    text = kubectl.run("get", *words, "--ignore-not-found", "--output=json").strip()
    if not text:
        return None
    try:
        one = documents.from_json(text)
    except ValueError as error:
        raise ClusterError("The API server gave no object.", why=str(error)) from error
    return one if isinstance(one, dict) else None


def _reported(node: dict[str, Any]) -> float:
    """When the kubelet last reported whether the node is Ready, in seconds since 1970."""
    times = [row.get("lastHeartbeatTime") for row in diagnose.conditions(node) if row["type"] == "Ready"]
    return _seconds(times[0] if times else None)


def _seconds(text: object) -> float:
    """A time of the API server, in seconds since 1970; 0 if there is none."""
    try:
        return datetime.fromisoformat(str(text or "")).timestamp()
    except ValueError:
        return 0.0


def _not_ready(subject: Subject, kubectl: Kubectl) -> ClusterError:
    node, lab = subject.name, subject.lab.name
    with subject.lab.scripts(subject.machine) as there:
        facts = diagnose.explain(kubectl, there, node)
    return ClusterError(
        f"'{node}' runs, but does not become Ready again.",
        why=facts,
        cure=f"Fix the cause and run the same command again; or try 'winlab restart {node} --lab {lab}'.",
        evidence=f"{logs(node, lab)}; winlab kubectl --lab {lab} -- describe node {node}",
    )
