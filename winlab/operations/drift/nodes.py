"""The guests: whether they answer, their services, and whether they are members of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

from winlab.adapters.vm import domains
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import Kind
from winlab.errors import WinlabError, logs
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject, Tier
from winlab.printable import printable
from winlab.steps import systems
from winlab.steps.boot import Login
from winlab.steps.states import (
    API,
    BINARIES,
    BOOTED,
    CNI,
    CONFIGURED,
    CONTAINERD,
    DRIVE_FREE,
    FEATURES,
    KUBELET,
    MEMBER,
    PAYLOAD,
    PAYLOAD_INSERTED,
    PREPARED,
    PROXY,
    READY,
    ROUTES,
)
from winlab.threads import Threads

# From a guest that answers to a node that is Ready
JOIN = (PAYLOAD_INSERTED, PREPARED, FEATURES, CONTAINERD, BINARIES, CONFIGURED, KUBELET, MEMBER, CNI, PROXY, READY)
SHOWN, MOST = 300, 200  # characters of what differs on a node, and how many differences are reported
LOGINS = 2  # a single timeout on a busy host is not drift
JOIN_LAB = (PAYLOAD, API, ROUTES)


def guests(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Each running guest: its login, its first boot, its services, its membership."""
    running = [node for node in subject.nodes if domains.is_running(subject.run.on(node).conn, node)]
    progress.say(f"asking {', '.join(node.name for node in running) or 'no guests'}")
    with Threads(max_workers=8) as pool:
        for findings in pool.map(partial(_look, subject), running):
            yield from findings


def _look(subject: Subject, node: NodePlan) -> list[Finding]:
    run, own = subject.run, systems.of(subject.run, node)
    login = Login(run, node, own)
    try:
        if not any(login.answers() for _ in range(LOGINS)):
            why = login.refusal.what if login.refusal else "does not answer"
            drift = Drift("node", node.name, "login", "answers", why, "waited for", repairable=True)
            return [Finding(drift, None, (BOOTED, DRIVE_FREE), unreached=True, tier=Tier.LOGIN)]
        if not subject.cluster or not node.is_member:
            return []
        condition = own.condition()
    except WinlabError as error:
        action = error.cure or f"look at '{logs(node.name, run.lab)}'"
        return [Finding(Drift("node", node.name, "login", "answers", error.what, action, repairable=False))]
    findings = [_service(run, node, name, state) for name, state in condition.services.items() if state != "running"]
    # a guest may name anything, and as much as it likes
    findings += [
        _changed(node, printable(what)[:SHOWN], step) for what, step in islice(condition.changed.items(), MOST)
    ]
    if not condition.joined:
        findings.append(_not_joined(node))
    return findings


def _service(run: Run, node: NodePlan, name: str, state: str) -> Finding:
    if state == "absent" and node.role == "controller":
        action = "run 'winlab create' if the lab was never complete"
        return Finding(Drift("node", node.name, name, "running", state, action, repairable=False))
    if state == "absent":
        drift = Drift("node", node.name, name, "running", state, "set up again as by create", repairable=True)
        return Finding(drift, None, JOIN, JOIN_LAB, tier=Tier.CLUSTER)
    drift = Drift("node", node.name, name, "running", state, "started", repairable=True)
    return Finding(drift, partial(_start, run, node, name), tier=Tier.SERVICE)


def _changed(node: NodePlan, what: str, step: Kind) -> Finding:
    action = "put right as by create; services that read it are restarted"
    drift = Drift("node", node.name, what, "as winlab renders it", "differs", action, repairable=True)
    return Finding(drift, None, (PAYLOAD_INSERTED, step), (PAYLOAD,), tier=Tier.CONFIG)


def _start(run: Run, node: NodePlan, service: str, progress: Progress) -> None:
    systems.of(run, node).start(service, progress)


def _not_joined(node: NodePlan) -> Finding:
    worker = node.role == "worker"
    # a controller's join begins with a reset, which deletes its part of etcd
    action = "joins again, as by create" if worker else "run 'winlab create' if the lab was never complete"
    drift = Drift("node", node.name, "membership", "joined", "not joined", action, repairable=worker)
    return Finding(drift, None, JOIN if worker else (), JOIN_LAB if worker else (), tier=Tier.CLUSTER)
