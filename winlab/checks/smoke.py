"""The smoke test: pods on the lab's nodes that talk to each other, to services, and to the outside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from winlab.checks import pods
from winlab.checks.access import Access
from winlab.checks.model import CheckFailed, NotApplicable, Outcome, RowResult, Stage, choose, is_standin, said
from winlab.checks.node_rows import SANDBOX
from winlab.checks.objects import Object, Objects, name_of, pod_problem, pull_trouble
from winlab.checks.pods import NAMESPACE, Seat
from winlab.checks.report import Report
from winlab.checks.rows import ROWS, Case, Need
from winlab.checks.testpods import TestPods
from winlab.design import contract
from winlab.design.plan.tags import Tag
from winlab.errors import ClusterError, Failure, WinlabError
from winlab.events import Listener, Progress
from winlab.threads import Threads

WORKERS = 4  # kubectl itself uses half a core while it runs
CLUSTER_KINDS = ("nodes", "runtimeclasses.node.k8s.io")
STANDIN_SECONDS = 180.0  # from a pod's creation until containerd reports that it can't
PULL_SECONDS = 180.0  # how long pulling may fail: a registry may be slow, a wrong name stays wrong
SCHEDULING_SECONDS = 60.0
GONE_SECONDS = 120.0  # for the namespace to be gone; after half of it, its pods are removed by force
LOOK = 3.0  # seconds between looks


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
    testpods = TestPods(lab, tags, access, Objects.look(access.kubectl, CLUSTER_KINDS))
    testpods.asked_for = frozenset(chosen or ())
    cases = [row for row in ROWS if chosen is None or row.id in chosen]
    unmet = {case.id: case.unmet(testpods) for case in cases}
    runnable = [case for case in cases if unmet[case.id] is None]
    wanted = {pod for case in runnable for pod in case.pods}
    seats = [seat for name, seat in testpods.seats.items() if name in wanted]
    # reported in the order of ROWS, whatever the order in which they end
    results: dict[str, RowResult] = {}
    for case in cases:
        if found := unmet[case.id]:
            results[case.id] = _result(case, *found)
    try:
        if seats:
            _clear(testpods, Stage(tell, "left-overs of an earlier run", access.clock), end=True)
            _make(testpods, seats, Stage(tell, f"pods {', '.join(seat.pod for seat in seats)}", access.clock))
        results.update(_judge_all(runnable, testpods, tell))
    finally:
        if seats and not keep:
            _clear(testpods, Stage(tell, f"removing the namespace {NAMESPACE}", access.clock), end=False)
    return Report("smoke", lab, tuple(results[case.id] for case in cases), began, access.clock() - begun)


def _judge_all(cases: Sequence[Case], testpods: TestPods, tell: Listener) -> dict[str, RowResult]:
    """Run the rows; those that don't disturb others run at the same time."""
    told = Stage(tell, f"{len(cases)} rows", testpods.access.clock)
    alone = [case for case in cases if Need.ASKED in case.needs]
    found: dict[str, RowResult] = {}
    with Threads(max_workers=WORKERS) as pool:
        try:
            together = [case for case in cases if case not in alone]
            for result in pool.map(lambda case: judge(case, testpods), together):
                found[result.id] = result
                told.say(f"row {result.id} {result.outcome}", len(found) / len(cases))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for case in alone:
        told.say(f"row {case.id}: {case.title}", len(found) / len(cases))
        found[case.id] = judge(case, testpods)
    told.conclude(found.values())
    return found


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
        detail += "; it works, though it is not known to"
    return _result(case, outcome, detail, testpods.access.clock() - begun)


def _result(case: Case, outcome: Outcome, detail: str, seconds: float = 0.0) -> RowResult:
    return RowResult(case.id, case.title, case.source, case.target, outcome, detail, seconds)


def _make(testpods: TestPods, seats: Sequence[Seat], told: Stage) -> None:
    """Create the pods and wait until each runs, or clearly won't.

    A pod that does not run is not an error here: the rows that need it report that.
    """
    nodes = {seat.pod: testpods.cluster.named("Node", seat.node) for seat in seats}
    there = {pod: node for pod, node in nodes.items() if node is not None}
    # the nodes with a pod come first: an image that they already have need not be pulled
    image = pods.image([*there.values(), *testpods.cluster.of("Node")])
    _load(testpods, [seat.tag for seat in seats if seat.pod in there], there, image, told)
    objects = pods.base()
    for seat in seats:
        if seat.pod in there:
            objects += pods.manifests(seat, there[seat.pod], image, testpods.cluster.of("RuntimeClass"))
    testpods.access.kubectl.apply(objects)
    begun = testpods.access.clock()
    patience: dict[tuple[str, str], float] = {}
    while True:
        testpods.look()
        waited = testpods.access.clock() - begun
        waiting = []
        for seat in seats:
            problem = _unsettled(testpods, seat)
            # counted from when the trouble began: it may come after a long pull
            kind = problem.partition(":")[0]
            since = patience.setdefault((seat.pod, kind), waited)
            if problem and waited - since < _limit(testpods, seat) * testpods.access.scale:
                waiting.append(f"{seat.pod}: {problem}")
        if not waiting:
            break
        told.say("; ".join(waiting)[:200])
        testpods.access.sleep(LOOK)
    told.end()


def _load(testpods: TestPods, tags: Sequence[Tag], nodes: Mapping[str, Object], image: str, told: Stage) -> None:
    """Load the image from the payload CD onto nodes that don't have it: create does not wait for that.

    A failure here is not an error: the node may be able to pull the image, and otherwise its pod shows what is wrong.
    """
    having = {name_of(node) for node in nodes.values() if image in _images(node)}
    wanted = {tag.node: tag for tag in tags if tag.node not in having}

    def load(tag: Tag) -> None:
        with suppress(WinlabError):
            testpods.access.script(tag, contract.LoadImages(images=[image]))

    told.say(f"importing {image} on {', '.join(wanted) or 'no node'}")
    with Threads(max_workers=WORKERS) as pool:
        list(pool.map(load, wanted.values()))


def _images(node: Object) -> set[str]:
    return {str(name) for found in node.get("status", {}).get("images", []) for name in found.get("names", [])}


def _unsettled(testpods: TestPods, seat: Seat) -> str:
    """What a pod still waits for; empty if it runs, or has got as far as it can."""
    pod = testpods.own.named("Pod", seat.pod)
    if pod is None:
        return ""
    problem = pod_problem(pod)
    if problem and is_standin(seat.tag):
        at_end = any(event.get("reason") == SANDBOX for event in testpods.own.warnings("Pod", seat.pod))
        return "" if at_end else problem
    return problem


def _limit(testpods: TestPods, seat: Seat) -> float:
    pod = testpods.own.named("Pod", seat.pod)
    if pod is not None and pull_trouble(pod):
        return PULL_SECONDS
    if pod is not None and pod_problem(pod).startswith("Unschedulable"):
        return SCHEDULING_SECONDS
    return STANDIN_SECONDS if is_standin(seat.tag) else seat.tag.system.ready_silence


def _clear(testpods: TestPods, told: Stage, *, end: bool) -> None:
    """Remove the namespace and everything in it, and wait until it is gone.

    :param end: whether it is an error if it stays.
    :raises ClusterError: it stays.
    """
    try:
        _remove_namespace(testpods, told)
    except WinlabError as error:
        told.fail(Failure.of(error))
        if end:
            raise
        # the results are worth more than the complaint
        told.note(f"{error.what} {said(error)}")
    else:
        told.end()


def _remove_namespace(testpods: TestPods, progress: Progress) -> None:
    kubectl, access = testpods.access.kubectl, testpods.access
    begun, forced = access.clock(), False
    kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    while kubectl.run("get", "namespace", NAMESPACE, "--ignore-not-found", "--output=name").strip():
        waited = access.clock() - begun
        progress.say(f"waiting for the namespace {NAMESPACE} to be gone")
        if waited > GONE_SECONDS * access.scale:
            raise ClusterError(
                f"The namespace {NAMESPACE} does not go away.",
                why=f"It was asked to {waited:.0f} s ago.",
                cure=f"See what holds it: 'kubectl get all --namespace={NAMESPACE}'.",
            )
        if waited > GONE_SECONDS * access.scale / 2 and not forced:
            # a node that is gone never confirms that its pods are gone
            forced = True
            kubectl.run(
                "delete", "pods", "--all", f"--namespace={NAMESPACE}", "--force", "--grace-period=0", "--wait=false"
            )
        access.sleep(LOOK)
