"""The rows of the smoke test: the traffic from one place to another, its requirements, and what a failure means.

The numbers are those of docs/testing.md; a row L4 is row 4 with Linux at both ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Literal

from winlab.checks import node_rows
from winlab.checks.model import CheckFailed, Outcome, said
from winlab.checks.objects import node_problem, pod_problem, signs
from winlab.checks.pods import PORT, PREFIX
from winlab.checks.testpods import OUTSIDE, TestPods
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import WinlabError
from winlab.events import Quiet

REBOOT_SILENCE = 900.0  # seconds on hardware without progress while a Windows node restarts
REBOOT_LOOK = 10.0  # seconds on hardware


class Need(StrEnum):
    """What a row needs of the lab."""

    LINUX = "linux-node"  # a Linux node
    WINDOWS = "windows-node"  # a Windows node
    KERNEL = "kernel"  # real Windows on it
    TWO_LINUX = "two-linux"  # two Linux nodes
    OUTSIDE = "outside"  # access to the internet from this host
    ASKED = "asked"  # that the user names it, because it disturbs the lab


@dataclass(frozen=True)
class Case:
    """One row. ``run`` returns what was seen or raises CheckFailed.

    :param otherwise: its outcome when it fails.
    :param pods: the pods that it needs.
    """

    id: str
    title: str
    source: str
    target: str
    needs: tuple[Need, ...]
    run: Callable[[TestPods, Case], str]
    pods: tuple[str, ...] = ()
    otherwise: Literal[Outcome.FAILED, Outcome.RECORDED, Outcome.UNSUPPORTED] = Outcome.FAILED

    def unmet(self, testpods: TestPods) -> tuple[Outcome, str] | None:
        """Why the row can't be run in this lab: an outcome and the reason. None if it can."""
        for need in self.needs:
            if need is Need.LINUX and not testpods.linux:
                return Outcome.NOT_APPLICABLE, "the lab has no Linux node"
            if need is Need.WINDOWS and not testpods.windows:
                return Outcome.NOT_APPLICABLE, "the lab has no Windows node"
            if need is Need.KERNEL and testpods.standin:
                return Outcome.REHEARSAL, "the Windows node is a stand-in, which runs no pods"
            if need is Need.TWO_LINUX and len(testpods.linux) < 2:
                return Outcome.NOT_APPLICABLE, "the lab does not have two Linux nodes"
            if need is Need.ASKED and self.id not in testpods.asked_for:
                return Outcome.NOT_APPLICABLE, f"it restarts a node; it is run only with --only {self.id}"
            if need is Need.OUTSIDE and not testpods.has_outside:
                return Outcome.NOT_APPLICABLE, f"this host can't reach {OUTSIDE[0]} itself"
        return None


def pod_to_pod(testpods: TestPods, case: Case) -> str:
    """A pod asks another at the other's address."""
    seen = testpods.ask(case.source, testpods.ip(case.target), case.target)
    same = testpods.seat(case.source).node == testpods.seat(case.target).node
    return f"{seen}, both on {testpods.seat(case.source).node}" if same else seen


def pod_to_service(testpods: TestPods, case: Case) -> str:
    """A pod asks another at its service's address."""
    return testpods.ask(case.source, testpods.vip(case.target), case.target)


def pod_to_name(testpods: TestPods, case: Case) -> str:
    """A pod asks another at its service's full name."""
    return testpods.ask(case.source, testpods.fqdn(case.target), case.target)


def outside_name(testpods: TestPods, case: Case) -> str:
    """A pod resolves an outside name."""
    try:
        testpods.connect_outside(case.source)
    except CheckFailed as failed:
        # the name is resolved first, so TIMEOUT and REFUSED concern the next row
        if "TIMEOUT" not in str(failed) and "REFUSED" not in str(failed):
            raise
    return f"{OUTSIDE[0]} was resolved"


def outside_tcp(testpods: TestPods, case: Case) -> str:
    """A pod opens a TCP connection to the outside."""
    return testpods.connect_outside(case.source)


def node_to_pod(testpods: TestPods, case: Case) -> str:
    """The API server, a process on a Linux node, asks a pod at the pod's address."""
    address = f"{testpods.ip(case.target)}:{PORT}"
    return testpods.named(testpods.persist(lambda: testpods.get(case.target, "hostname")), case.target, address)


def node_port(testpods: TestPods, case: Case, at: str) -> str:
    """This host asks a pod's service at a node's port."""
    testpods.ip(case.target)
    url = f"http://{testpods.seat(at).tag.floating}:{testpods.node_port(case.target)}/hostname"
    return testpods.named(testpods.persist(lambda: testpods.access.fetch(url)), case.target, url)


def logs_and_exec(testpods: TestPods, case: Case) -> str:
    """The API server reaches the kubelet, port 10250, for a pod's log and for a command in it."""
    testpods.ip(case.target)
    log = testpods.persist(lambda: testpods.logs(case.target))
    if "HTTP server" not in log:  # "Started HTTP server on port 80"
        raise CheckFailed(
            f"the log of {case.target} does not have its first line: {log.strip()[:120] or 'it is empty'}"
        )
    version = testpods.execute(case.target, "--version").strip()
    if "version" not in version:
        raise CheckFailed(f"'agnhost --version' in {case.target} printed: {version[:120] or 'nothing'}")
    return f"a log of {len(log.splitlines())} lines, and '{version}'"


def transfer(testpods: TestPods, case: Case) -> str:
    """Each of two pods fetches more than a mebibyte from the other, which fails with a wrong MTU or checksum."""
    there = testpods.transfer(case.source, case.target)
    back = testpods.transfer(case.target, case.source)
    return f"{there} bytes from {case.target}, {back} from {case.source}, undamaged"


def windows_node_to_service(testpods: TestPods, case: Case) -> str:
    """A Windows node, not a pod, asks a service and its own NodePort."""
    testpods.ip(case.target)
    tag = testpods.seat(W1).tag
    addresses = (f"{testpods.vip(case.target)}:{PORT}", f"{tag.address}:{testpods.node_port(case.target)}")
    for address in addresses:
        url = f"http://{address}/hostname"
        try:
            # curl.exe has been part of Windows since build 17063
            answer = testpods.access.execute(tag, ["curl.exe", "--silent", "--show-error", "--max-time", "10", url])
        except WinlabError as error:
            raise CheckFailed(f"{url} from {tag.node}: {said(error)}") from error
        testpods.named(answer, case.target, url)
    return f"{' and '.join(addresses)} answered"


def reboot(testpods: TestPods, case: Case) -> str:
    """Restart the Windows node, wait until it and its pods are back, and repeat rows 1 to 6."""
    tag = testpods.seat(W1).tag
    before = node_rows.info(testpods.node(tag), "bootID")
    try:
        testpods.access.execute(tag, ["shutdown.exe", "/r", "/t", "5"])
    except WinlabError as error:
        raise CheckFailed(f"{tag.node} can't be restarted: {said(error)}") from error
    begun, seen = testpods.access.clock(), set[str]()

    def look() -> Met[None] | Waiting:
        try:
            node = testpods.access.kubectl.get("node", tag.node)
            testpods.look()
        except WinlabError as error:
            return Waiting(said(error), len(seen))
        boot = node_rows.info(node, "bootID")
        seen.update(signs([{"kind": "Node", **node}, *testpods.own.items]), {boot})
        if boot == before:
            return Waiting("it has not shut down", len(seen))
        pods = [testpods.own.named("Pod", name) for name in case.pods]
        problem = node_problem(node) or "; ".join(pod_problem(pod) for pod in pods if pod and pod_problem(pod))
        return Waiting(problem, len(seen)) if problem else Met(None)

    def give_up(last: Waiting) -> CheckFailed:
        return CheckFailed(f"{tag.node} did not recover: {last.says}")

    scale = testpods.access.scale
    wait.until(look, Quiet(), give_up, stall=REBOOT_SILENCE * scale, poll=REBOOT_LOOK * scale)
    seconds = testpods.access.clock() - begun
    failures = []
    for row in ROWS:
        if row.id in ("1", "2", "3", "4", "5", "6"):
            try:
                row.run(testpods, row)
            except CheckFailed as failed:
                failures.append(f"row {row.id}: {failed}")
    if failures:
        raise CheckFailed("after the restart " + "; ".join(failures))
    return f"{tag.node} was back after {seconds:.0f} s, and rows 1 to 6 pass"


def windows_pod(testpods: TestPods, case: Case) -> str:
    """See :func:`winlab.checks.node_rows.windows_pod`."""
    return node_rows.windows_pod(testpods, case.target)


def _facts(check: Callable[[TestPods], str]) -> Callable[[TestPods, Case], str]:
    return lambda testpods, _case: check(testpods)


WINDOWS = (Need.WINDOWS,)
KERNEL = (Need.WINDOWS, Need.KERNEL)
BOTH = (Need.LINUX, *KERNEL)
LINUX = (Need.LINUX,)
TWO = (Need.TWO_LINUX,)
L1, L2, W1, W2 = (f"{PREFIX}{name}" for name in ("linux-1", "linux-2", "windows-1", "windows-2"))

ROWS = (
    Case("1", "pod to pod", L1, W1, BOTH, pod_to_pod, (L1, W1)),
    Case("2", "pod to pod", W1, L1, BOTH, pod_to_pod, (L1, W1)),
    Case("3", "pod to pod", W1, W2, KERNEL, pod_to_pod, (W1, W2)),
    Case("4", "pod to service", L1, W1, BOTH, pod_to_service, (L1, W1)),
    Case("5", "pod to service", W1, L1, BOTH, pod_to_service, (L1, W1)),
    Case("6", "pod to service by name", W1, L1, BOTH, pod_to_name, (L1, W1)),
    Case("6b", "name of the outside", W1, "DNS", (*KERNEL, Need.OUTSIDE), outside_name, (W1,)),
    Case("7", "Linux node to pod", "API server", W1, KERNEL, node_to_pod, (W1,)),
    Case("8", "NodePort of a Linux node", "host", W1, BOTH, partial(node_port, at=L1), (W1,)),
    Case("9", "NodePort of a Windows node", "host", W1, KERNEL, partial(node_port, at=W1), (W1,), Outcome.RECORDED),
    Case("10", "TCP to the outside", W1, "outside", (*KERNEL, Need.OUTSIDE), outside_tcp, (W1,)),
    Case("11", "log and exec", "API server", W1, KERNEL, logs_and_exec, (W1,)),
    Case("12", "1 MiB each way", L1, W1, BOTH, transfer, (L1, W1)),
    Case("13", "Windows node to service", "node", W1, KERNEL, windows_node_to_service, (W1,), Outcome.UNSUPPORTED),
    Case("14", "rows 1 to 6 after a restart", W1, L1, (*BOTH, Need.ASKED), reboot, (L1, W1, W2)),
    Case("L1", "pod to pod", L1, L2, TWO, pod_to_pod, (L1, L2)),
    Case("L2", "pod to pod", L2, L1, TWO, pod_to_pod, (L1, L2)),
    Case("L4", "pod to service", L1, L2, LINUX, pod_to_service, (L1, L2)),
    Case("L5", "pod to service", L2, L1, LINUX, pod_to_service, (L1, L2)),
    Case("L6", "pod to service by name", L1, L2, LINUX, pod_to_name, (L1, L2)),
    Case("L6b", "name of the outside", L1, "DNS", (Need.LINUX, Need.OUTSIDE), outside_name, (L1,)),
    Case("L7", "Linux node to pod", "API server", L1, LINUX, node_to_pod, (L1,)),
    Case("L8", "NodePort of another node", "host", L2, TWO, partial(node_port, at=L1), (L2,)),
    Case("L10", "TCP to the outside", L1, "outside", (Need.LINUX, Need.OUTSIDE), outside_tcp, (L1,)),
    Case("L11", "log and exec", "API server", L1, LINUX, logs_and_exec, (L1,)),
    Case("L12", "1 MiB each way", L1, L2, TWO, transfer, (L1, L2)),
    Case("N1", "Ready, with its labels", "Windows nodes", "", WINDOWS, _facts(node_rows.labels)),
    Case("N2", "taint keeps Linux pods away", "Windows nodes", "", WINDOWS, _facts(node_rows.taint)),
    Case("N3", "InternalIP is the lab's", "Windows nodes", "", WINDOWS, _facts(node_rows.address)),
    Case("N4", "versions of kubelet, runtime", "Windows nodes", "", WINDOWS, _facts(node_rows.kubelet)),
    Case("N5", "lease is renewed", "Windows nodes", "", WINDOWS, _facts(node_rows.lease)),
    Case("N6", "RuntimeClass for the build", "Windows nodes", "", WINDOWS, _facts(node_rows.runtime_classes)),
    Case("N7", "scheduled, and handed to containerd", "API server", W1, WINDOWS, windows_pod, (W1,)),
    Case("N8", "OVN routes to pod networks", "router", "nodes", (), _facts(node_rows.routes)),
)
