"""One view of a lab as it changes: its run from the journal, who runs it, and the state of its nodes.

The journal is read every second. Nodes are asked in the background and rarely, because each query is a login.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from winlab import locks
from winlab.design.plan.lab_name import check_lab_name
from winlab.errors import NotFoundError, WinlabError
from winlab.events import Event
from winlab.history import left
from winlab.history.runs import OPEN, OVER, History, RunRecord, RunState, StepRecord
from winlab.journal import Follower
from winlab.lab_folder import LabFolder
from winlab.operations import look, timeline
from winlab.operations.look import NodeStatus
from winlab.site import Site
from winlab.threads import Threads

FOLLOW = 1.0  # seconds between two looks at the journal
STATES = 5.0  # seconds between two looks at the machines' states
ASK = 30.0  # seconds between two queries to a node


@dataclass(frozen=True)
class Worker:
    """The process that holds the lab's lock, and its user."""

    pid: int
    user: str


@dataclass
class NodeView:
    """What is known of one node, or of the lab itself.

    :param name: the node's, ``lab`` for what belongs to no node; a golden image's machine is named with its lab.
    :param state: the machine's; empty if there is none.
    :param answers: None if it was not asked.
    :param total: how many steps the run has for it.
    :param steps: those at work.
    """

    name: str
    state: str = ""
    answers: bool | None = None
    problem: str = ""
    done: int = 0
    total: int = 0
    steps: list[StepRecord] = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """A lab at one moment.

    :param time: seconds since 1970.
    :param worker: who is changing the lab now, if anyone.
    :param run: the last run in the journal, if there is one.
    :param elapsed: seconds since the run began, until its end.
    :param left: seconds that the rest of the run is likely to take; None if there is no run now.
    :param outside: the last event, if it belongs to no run, as with ``destroy``.
    :param trouble: why the machines can't be looked at.
    """

    lab: str
    time: float
    worker: Worker | None
    run: RunRecord | None
    elapsed: float
    left: float | None
    nodes: tuple[NodeView, ...]
    outside: Event | None = None
    trouble: str = ""

    def spent(self, step: StepRecord) -> float:
        """How long a step that is at work has taken, in seconds."""
        return max(0.0, self.elapsed - (step.begun or 0.0))

    def document(self) -> dict[str, Any]:
        """All of it as a JSON object."""
        run, worker = self.run, self.worker
        nodes = [
            {
                "node": node.name,
                "state": node.state,
                "answers": node.answers,
                "problem": node.problem,
                "done": node.done,
                "total": node.total,
                "steps": [
                    {
                        "step": step.planned.step,
                        "state": step.state,
                        "text": step.text,
                        "fraction": step.fraction,
                        "usual": step.planned.usual,
                        "seconds": round(self.spent(step), 1),
                    }
                    for step in node.steps
                ],
            }
            for node in self.nodes
        ]
        return {
            "lab": self.lab,
            "time": self.time,
            "worker": None if worker is None else {"pid": worker.pid, "user": worker.user},
            "run": None
            if run is None
            else {
                "number": run.number,
                "id": run.id,
                "command": run.command,
                "pid": run.pid,
                "user": run.user,
                "version": run.version,
                "began": run.began,
                "state": run.state,
                "exit_code": run.exit_code,
                "done": run.done,
                "total": len(run.steps),
                "seconds": round(self.elapsed, 1),
                "left": None if self.left is None else round(self.left, 1),
            },
            "nodes": nodes,
            "trouble": self.trouble,
        }


def watch(lab: str, site: Site) -> Generator[View, None, None]:
    """The lab, every second; it does not end by itself.

    :raises NotFoundError: there is no trace of such a lab.
    :raises UsageError: no lab can have this name.
    """
    check_lab_name(lab, own=True)
    folder = site.folder(lab)
    with timeline.reading(folder):
        is_known = folder.path.exists()
    if not is_known:
        with site.hypervisors() as hosts:
            look.find(lab, hosts)  # raises, and names those that exist
    return _watch(lab, site, folder)


def _watch(lab: str, site: Site, folder: LabFolder) -> Generator[View, None, None]:
    history = History()
    with closing(Follower(folder.journal)) as follower, Threads(max_workers=1) as pool:
        nodes = _Nodes(lab, site, pool)
        while True:
            restarts, before = follower.restarts, folder.worker()
            with timeline.reading(folder):
                news = follower.news()
            if follower.restarts != restarts:
                history = History()
            for event in news:
                history.take(event)
            statuses = nodes.latest()
            worker = folder.worker() or before  # it may have begun or ended while the journal was read
            yield view(lab, history, worker, statuses, time.time(), nodes.trouble)
            time.sleep(FOLLOW)


class _Nodes:
    """The machines' states and answers, as last seen."""

    def __init__(self, lab: str, site: Site, pool: Threads) -> None:
        self.trouble = ""
        self._lab = lab
        self._site = site
        self._pool = pool
        self._job: Future[list[NodeStatus]] | None = None
        self._looked = self._asked = -ASK
        self._known: list[NodeStatus] = []

    def latest(self) -> list[NodeStatus]:
        """What is known now; begins another look if it is time for one."""
        now = time.monotonic()
        if self._job is not None and self._job.done():
            try:
                self._known, self.trouble = self._job.result(), ""
            except NotFoundError:
                self._known, self.trouble = [], ""
            except WinlabError as error:
                self.trouble = error.what
            self._job, self._looked = None, now
        ask = bool(self._known) and now - self._asked >= ASK  # their states are there sooner than their answers
        if self._job is None and (ask or now - self._looked >= STATES):
            self._asked = now if ask else self._asked
            self._job = self._pool.submit(self._look, ask)
        return self._known

    def _look(self, ask: bool) -> list[NodeStatus]:
        with self._site.in_use():
            if ask:
                return look.status(self._lab, self._site)
            before = {status.tag.node: status for status in self._known}
            return [
                _since(
                    machine.tag.node,
                    before,
                    NodeStatus(machine.tag, machine.state, None, hypervisor=machine.hypervisor),
                )
                for machine in look.machines(self._lab, self._site)
            ]


def _since(node: str, before: dict[str, NodeStatus], now: NodeStatus) -> NodeStatus:
    """A node with its earlier answer, if it is in the same state."""
    known = before.get(node)
    return known if known is not None and known.state == now.state else now


def view(
    lab: str, history: History, worker: int | None, statuses: list[NodeStatus], now: float, trouble: str = ""
) -> View:
    """What is known of a lab at one moment. Pure, but for the name of the worker's user.

    :param worker: the process that holds the lab's lock.
    :param now: seconds since 1970.
    """
    run = history.runs[-1] if history.runs else None
    is_running = run is not None and run.exit_code is None and worker is not None and run.pid in (worker, 0)
    if run is not None and is_running:
        run.state = RunState.RUNNING
    elif run is not None and run.state is RunState.RUNNING:
        run.close(RunState.SILENT)
    elapsed, rest = 0.0, None
    if run is not None:
        elapsed = run.elapsed + (max(0.0, now - run.last) if is_running else 0.0)
        if is_running:
            earlier = History()
            earlier.runs = history.runs[:-1]
            rest = left.seconds(run, elapsed, earlier.known_done())
    return View(
        lab,
        now,
        None if worker is None else Worker(worker, locks.owner(worker)),
        run,
        elapsed,
        rest,
        tuple(_nodes(run, is_running, statuses)),
        history.outside if worker is not None else None,
        trouble,
    )


def _nodes(run: RunRecord | None, is_running: bool, statuses: list[NodeStatus]) -> list[NodeView]:
    views = {
        status.tag.node: NodeView(status.tag.node, status.state, status.answers, status.problem) for status in statuses
    }
    for step in run.steps if run is not None else ():
        assert run is not None
        group = run.group(step)
        if not is_running and group not in views:
            continue  # the remains of an ended run are in its timeline
        shown = views.setdefault(group, NodeView(group))
        shown.total += 1
        shown.done += step.state in OVER
        if step.state in OPEN:
            shown.steps.append(step)
    return list(views.values())
