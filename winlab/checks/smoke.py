"""The smoke test: pods on the lab's nodes that talk to each other, to services, and to the outside."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from winlab import documents
from winlab.adapters.kube.kubectl import Kubectl
from winlab.checks import pods
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed, NotApplicable, Outcome, RowResult, Stage, choose, is_standin, said
from winlab.checks.node_rows import SANDBOX
from winlab.checks.objects import Object, Objects, name_of, pod_problem, pull_trouble, signs
from winlab.checks.pods import NAMESPACE, Seat
from winlab.checks.report import Report
from winlab.checks.rows import ROWS, Case, Need
from winlab.checks.testpods import TestPods
from winlab.design.contract import on_both
from winlab.design.plan.tags import Tag
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, Failure, WinlabError
from winlab.events import Listener, Note, Progress
from winlab.stopping import Stopped
from winlab.threads import Threads

WORKERS = 4  # kubectl itself uses half a core while it runs
CLUSTER_KINDS = ("nodes", "runtimeclasses.node.k8s.io")
# Seconds on hardware
STANDIN_SECONDS = 180.0  # without progress until containerd reports that it can't start a pod
PULL_SECONDS = 180.0  # how long pulls may fail: a registry may be slow, but a wrong name stays wrong
SCHEDULING_SECONDS = 60.0  # how long the scheduler may find no node
GONE_SECONDS = 60.0  # without progress in deleting the namespace; then its pods are deleted by force
LOOK = 3.0  # seconds between looks


class _GivenUp(Exception):
    """A wait was given up."""


def _given_up(seen: Waiting) -> _GivenUp:
    return _GivenUp(seen.says)


def run(
    lab: str, tags: Sequence[Tag], access: Access, tell: Listener, *, only: str | None = None, keep: bool = False
) -> Report:
    """Run the rows and remove what was created for them.

    :param only: identifiers of rows, with commas between; None: all.
    :param keep: leave the pods for inspection.
    :raises UsageError: *only* names a row that does not exist.
    :raises ClusterError: the API server does not answer, or refuses the pods.
    """
    chosen = choose([row.id for row in ROWS], only)
    began, begun = time.time(), access.clock()
    testpods = TestPods(lab, tags, access, _cluster(access, Stage(tell, "look at the cluster", access.clock)))
    testpods.asked_for = frozenset(chosen or ())
    cases = [row for row in ROWS if chosen is None or row.id in chosen]
    unmet = {case.id: case.unmet(testpods) for case in cases}
    runnable = [case for case in cases if unmet[case.id] is None]
    wanted = {pod for case in runnable for pod in case.pods}
    seats = [seat for name, seat in testpods.seats.items() if name in wanted]
    # reported in the order of ROWS, in whatever order they end
    results: dict[str, RowResult] = {}
    for case in cases:
        if verdict := unmet[case.id]:
            results[case.id] = _result(case, *verdict)
    try:
        if seats:
            _clear(testpods, Stage(tell, "removing the pods of an earlier run", access.clock), end=True)
            _make(testpods, seats, Stage(tell, f"pods {', '.join(seat.pod for seat in seats)}", access.clock))
        results.update(_judge_all(runnable, testpods, tell))
    except (KeyboardInterrupt, Stopped):
        if seats and not keep:
            keep = True  # a command has five seconds to end
            tell(Note(lab=lab, text=_begin_to_remove(testpods.access.kubectl)))
        raise
    finally:
        if seats and not keep:
            _clear(testpods, Stage(tell, f"removing the namespace {NAMESPACE}", access.clock), end=False)
        access.logout()
    return Report("smoke", lab, tuple(results[case.id] for case in cases), began, access.clock() - begun)


def _cluster(access: Access, stage: Stage) -> Objects:
    """The cluster's nodes and runtime classes.

    :raises ClusterError: the API server does not answer.
    """
    try:
        found = Objects.look(access.kubectl, CLUSTER_KINDS)
    except WinlabError as error:
        stage.fail(Failure.of(error))
        raise
    stage.end()
    return found


def _judge_all(cases: Sequence[Case], testpods: TestPods, tell: Listener) -> dict[str, RowResult]:
    """Run the rows, in parallel except for those that disturb others."""
    stage = Stage(tell, f"{len(cases)} rows", testpods.access.clock)
    alone = [case for case in cases if Need.ASKED in case.needs]
    results: dict[str, RowResult] = {}
    with Threads(max_workers=WORKERS) as pool:
        try:
            together = [case for case in cases if case not in alone]
            for result in pool.map(lambda case: judge(case, testpods), together):
                results[result.id] = result
                stage.say(f"row {result.id} {result.outcome}", len(results) / len(cases))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for case in alone:
        stage.say(f"row {case.id}: {case.title}", len(results) / len(cases))
        results[case.id] = judge(case, testpods)
    stage.conclude(results.values())
    return results


def judge(case: Case, testpods: TestPods) -> RowResult:
    """Run one row."""
    begun = testpods.access.clock()
    try:
        outcome, detail = Outcome.PASSED, case.run(testpods, case)
    except NotApplicable as reason:
        outcome, detail = Outcome.NOT_APPLICABLE, str(reason)
    except CheckFailed as failed:
        outcome, detail = case.otherwise, str(failed)
    if outcome is Outcome.PASSED and case.otherwise is Outcome.UNSUPPORTED:
        detail += "; it works, although that was not expected"
    return _result(case, outcome, detail, testpods.access.clock() - begun)


def _result(case: Case, outcome: Outcome, detail: str, seconds: float = 0.0) -> RowResult:
    return RowResult(case.id, case.title, case.source, case.target, outcome, detail, seconds)


def _make(testpods: TestPods, seats: Sequence[Seat], stage: Stage) -> None:
    """Create the pods and wait until each runs, or makes no further progress.

    A pod that does not run is not an error here: the rows that need it report that.
    """
    nodes = {seat.pod: testpods.cluster.named("Node", seat.node) for seat in seats}
    existing = {pod: node for pod, node in nodes.items() if node is not None}
    # the nodes with a pod come first: they need not pull an image that they have
    image = pods.image([*existing.values(), *testpods.cluster.of("Node")])
    _load(testpods, [seat.tag for seat in seats if seat.pod in existing], existing, image, stage)
    objects = pods.base()
    for seat in seats:
        if seat.pod in existing:
            objects += pods.manifests(seat, existing[seat.pod], image, testpods.cluster.of("RuntimeClass"))
    testpods.access.kubectl.apply(objects)
    settling = _Settling(testpods, seats)
    with suppress(_GivenUp):
        wait.until(settling.look, stage, _given_up, stall=settling.stall, poll=LOOK)
    stage.end()


class _Settling:
    """Waits until each pod runs, or has an error that waiting does not cure."""

    def __init__(self, testpods: TestPods, seats: Sequence[Seat]) -> None:
        self._testpods, self._seats = testpods, seats
        self._seen: set[str] = set()
        self._since: dict[tuple[str, float], float] = {}  # by pod and limit: when its error began

    @property
    def stall(self) -> float:
        """Seconds without progress after which the wait is over."""
        # the pods start at the same time, so the slowest system decides
        return max(_silence(seat) for seat in self._seats) * self._testpods.access.scale

    def look(self) -> Met[None] | Waiting:
        """Look once."""
        self._testpods.look()
        self._seen |= signs(self._testpods.own.items)
        waiting = [f"{seat.pod}: {problem}" for seat in self._seats if (problem := self._unsettled(seat))]
        # a number, because pods that alternate independently have very many combinations
        return Waiting("; ".join(waiting)[:200], len(self._seen)) if waiting else Met(None)

    def _unsettled(self, seat: Seat) -> str:
        """What a pod still waits for; empty if the wait for it is over."""
        pod = self._testpods.own.named("Pod", seat.pod)
        problem = pod_problem(pod) if pod is not None else ""
        if pod is None or not problem:
            return ""
        warnings = self._testpods.own.warnings("Pod", seat.pod)
        if is_standin(seat.tag) and any(event.get("reason") == SANDBOX for event in warnings):
            return ""
        limit = _limit(pod)
        # counted from the error's beginning, which may be after a long pull
        since = self._since.setdefault((seat.pod, limit), self._testpods.access.clock())
        return problem if self._testpods.access.clock() - since < limit * self._testpods.access.scale else ""


def _load(testpods: TestPods, tags: Sequence[Tag], nodes: Mapping[str, Object], image: str, stage: Stage) -> None:
    """Load the image from the payload CD onto nodes that don't have it yet: create does not wait for it.

    A failure here is not an error: the node may be able to pull the image; if not, its pod shows why.
    """
    having = {name_of(node) for node in nodes.values() if image in _images(node)}
    wanted = {tag.node: tag for tag in tags if tag.node not in having}

    def load(tag: Tag) -> None:
        with suppress(WinlabError):
            testpods.access.script(tag, on_both.LoadImages(images=[image]))

    stage.say(f"importing {image} on {', '.join(wanted) or 'no node'}")
    with Threads(max_workers=WORKERS) as pool:
        list(pool.map(load, wanted.values()))
    testpods.access.logout()  # the rows may come much later


def _images(node: Object) -> set[str]:
    return {str(name) for image in node.get("status", {}).get("images", []) for name in image.get("names", [])}


def _silence(seat: Seat) -> float:
    return STANDIN_SECONDS if is_standin(seat.tag) else seat.tag.system.ready_silence


def _limit(pod: Object) -> float:
    """Seconds on hardware that a pod may have an error which waiting rarely cures; infinite for other errors."""
    if pull_trouble(pod):
        return PULL_SECONDS
    return SCHEDULING_SECONDS if pod_problem(pod).startswith("Unschedulable") else math.inf


def _clear(testpods: TestPods, stage: Stage, *, end: bool) -> None:
    """Remove the namespace and everything in it, and wait until it is gone.

    :param end: raise an error if it stays; otherwise only report it.
    :raises ClusterError: it stays, and *end* is set.
    """
    try:
        _remove_namespace(testpods, stage)
    except WinlabError as error:
        stage.fail(Failure.of(error))
        if end:
            raise
        # the results matter more than this error
        stage.note(f"{error.what} {said(error)}")
    else:
        stage.end()


def _remove_namespace(testpods: TestPods, progress: Progress) -> None:
    kubectl = testpods.access.kubectl
    stall = GONE_SECONDS * testpods.access.scale
    _delete_namespace(kubectl)
    if _goes(kubectl, progress, stall):
        return
    # a node that is gone never confirms that its pods have ended
    kubectl.run("delete", "pods", "--all", f"--namespace={NAMESPACE}", "--force", "--grace-period=0", "--wait=false")
    if not _goes(kubectl, progress, stall):
        raise ClusterError(
            f"The namespace {NAMESPACE} was deleted, but is still there.",
            why=f"Nothing about it has changed for {stall:.0f} s.",
            cure=f"'kubectl get all --namespace={NAMESPACE}' shows what is left in it.",
        )


def _begin_to_remove(kubectl: Kubectl) -> str:
    """Ask the cluster to remove the namespace, and report that or why it fails."""
    try:
        _delete_namespace(kubectl)
    except WinlabError as error:
        return f"The namespace {NAMESPACE} stays: {error.what} {said(error)}"
    return f"The namespace {NAMESPACE} is still being removed."


def _delete_namespace(kubectl: Kubectl) -> None:
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def _goes(kubectl: Kubectl, progress: Progress, stall: float) -> bool:
    """Wait until the namespace is gone; False if it has not changed for *stall* seconds."""
    seen: set[str] = set()

    def look() -> Met[None] | Waiting:
        namespace = kubectl.run("get", "namespace", NAMESPACE, "--ignore-not-found", "--output=json").strip()
        if not namespace:
            return Met(None)
        seen.update(signs([documents.from_json(namespace)]))
        return Waiting(f"waiting until the namespace {NAMESPACE} is gone", len(seen))

    try:
        wait.until(look, progress, _given_up, stall=stall, poll=LOOK)
    except _GivenUp:
        return False
    return True
