"""``winlab test readiness``: waits until every readiness gate holds.

All gates judge the same view of the API server, repeatedly, as long as the cluster makes progress
(:mod:`winlab.engine.wait`).
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from winlab import stopping
from winlab.addons import record
from winlab.addons.api import Addon, Check, Cluster
from winlab.checks import windows_gates
from winlab.checks.access import Access
from winlab.checks.gates import GATES, KINDS, SYSTEM, Gate, View, idle, signs
from winlab.checks.model import CheckFailed, NotApplicable, Outcome, RowResult, Stage, choose, is_standin, said
from winlab.checks.objects import Objects
from winlab.checks.report import Report
from winlab.design.addon import registry
from winlab.design.plan.tags import Tag, running
from winlab.design.system import WINDOWS
from winlab.engine import wait
from winlab.engine.wait import Met, Waiting
from winlab.errors import WinlabError
from winlab.events import Listener

Answer = TypeVar("Answer")
LOOK = 5.0  # seconds between looks
SLOW_LOOK = 15.0  # seconds between queries to the same Windows node
ADDONS_SILENCE = 300.0  # seconds on hardware for the API server to return the add-ons


class _GivenUp(Exception):
    """A wait was given up; the text says what it waited for."""


def _given_up(seen: Waiting) -> _GivenUp:
    return _GivenUp(seen.says)


class _Deadline:
    """When the test ends, and whether it left a query alone that was under way then.

    :param seconds: from now on; None or 0: queries take as long as they take.
    """

    def __init__(self, seconds: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        begun = clock()
        self.end = math.inf if seconds is None else begun + seconds
        self._bound = self.end if seconds else math.inf
        self.left_one = False

    @property
    def passed(self) -> bool:
        """Whether it is time to end."""
        return self._clock() >= self.end

    def within(self, query: Callable[[], Answer]) -> Answer:
        """What a query returns. Nodes and API servers that are unresponsive may take minutes.

        :raises _GivenUp: it takes longer than there is time.
        """
        if self._bound == math.inf:
            return query()
        context = contextvars.copy_context()
        try:
            return stopping.patiently(lambda: context.run(query), limit=max(0.0, self._bound - self._clock()))
        except TimeoutError as error:
            self.left_one = True
            raise _GivenUp("no answer came before the time was over") from error


def run(
    lab: str,
    tags: Sequence[Tag],
    access: Access,
    tell: Listener,
    *,
    only: str | None = None,
    timeout: float | None = None,
) -> Report:
    """Wait until the gates pass.

    :param only: identifiers of gates, with commas between; None: all.
    :param timeout: seconds after which gates have failed that do not pass, even if the cluster makes progress.
    :raises UsageError: *only* names a gate that does not exist.
    """
    chosen = chosen_gates(only)
    began, begun = time.time(), access.clock()
    gates = [gate for gate in GATES if chosen is None or gate.id in chosen]
    stage = Stage(tell, f"{len(gates)} gates", access.clock)
    deadline = _Deadline(timeout, access.clock)
    gates += _AddonGates(tags, access, chosen).find(stage, deadline)
    results = _Judge(gates, tags, access, stage, deadline).wait(begun)
    ordered = tuple(results[gate.id] for gate in gates)
    stage.conclude(ordered)
    return Report("readiness", lab, ordered, began, access.clock() - begun)


def chosen_gates(only: str | None) -> set[str] | None:
    """The identifiers in the list *only*; an add-on's name stands for all of its rows.

    :raises UsageError: one of them is unknown, or the list is empty.
    """
    return None if only is None else choose([*(gate.id for gate in GATES), *registry()], only)


class _AddonGates:
    """The gates of the cluster's add-ons."""

    def __init__(self, tags: Sequence[Tag], access: Access, chosen: set[str] | None) -> None:
        self._access = access
        self._cluster = Cluster(access.kubectl, tuple(tags))
        self._only = None if chosen is None else [name for name in registry() if name in chosen]

    def find(self, stage: Stage, deadline: _Deadline) -> list[Gate]:
        """Wait until the API server returns the cluster's add-ons; their gates, or one failing gate that says why."""
        if self._only == []:
            return []
        try:
            stall = ADDONS_SILENCE * self._access.scale
            installed = wait.until(partial(self._look, deadline), stage, _given_up, stall=stall, poll=LOOK)
        except _GivenUp as failed:
            return [Gate("add-ons", "the cluster's add-ons are known", SYSTEM, 0, partial(_fail, str(failed)))]
        gates = []
        for name in installed if self._only is None else self._only:
            addon = registry()[name]
            if name not in installed:
                gates.append(Gate(name, addon.summary, SYSTEM, 0, _not_there))
            elif isinstance(addon, Addon):
                rows = enumerate(addon.checks(installed[name]), start=1)
                gates += [self._gate(name if n == 1 else f"{name}-{n}", check) for n, check in rows]
        return gates

    def _look(self, deadline: _Deadline) -> Met[dict[str, Any]] | Waiting:
        try:
            return Met(deadline.within(lambda: record.read(self._cluster.kubectl)))
        except WinlabError as error:
            if deadline.passed:
                raise _GivenUp(said(error)) from error
            return Waiting(said(error))

    def _gate(self, id_: str, check: Check) -> Gate:
        def look(_view: View) -> str:
            try:
                return check.look(self._cluster)
            except WinlabError as error:
                raise CheckFailed(said(error)) from error

        return Gate(id_, check.title, check.where, check.seconds, look, windows=check.windows, real=check.real)


def _fail(why: str, _view: View) -> str:
    raise CheckFailed(why)


def _not_there(_view: View) -> str:
    raise NotApplicable("the lab does not have this add-on")


class _Judge:
    """Judges gates until each passes or can't pass, or the cluster makes no further progress."""

    def __init__(
        self, gates: Sequence[Gate], tags: Sequence[Tag], access: Access, stage: Stage, deadline: _Deadline
    ) -> None:
        self._gates, self._access, self._stage, self._deadline = gates, access, stage, deadline
        self._looker = _Looker(tags, access)
        self._results = {gate.id: result for gate in gates if (result := _left_out(gate, tags)) is not None}
        self._view = View(tuple(tags))
        self._failing: dict[str, str] = {}  # by gate: why it does not pass
        self._seen: set[str] = set()

    def wait(self, begun: float) -> dict[str, RowResult]:
        """The results, by gate.

        :param begun: when the test began; the results' durations count from then.
        """
        if not (pending := self._pending()):
            return self._results
        # gates wait for each other's parts of the cluster, so the most patient one decides
        stall = max(gate.silence for gate in pending) * self._access.scale
        why = ""
        try:
            wait.until(partial(self._look, begun), self._stage, _given_up, stall=stall, poll=LOOK)
        except _GivenUp as given_up:
            why = str(given_up)  # what the failing gates say is more
        finally:
            if not self._deadline.left_one:  # otherwise it still uses a login
                self._access.logout()
        for gate in self._pending():
            detail = self._failing.get(gate.id, why)
            if not self._deadline.left_one:
                detail = self._looker.explain(gate, self._view, detail)
            self._keep(gate, Outcome.FAILED, detail, begun)
        return self._results

    def _look(self, begun: float) -> Met[None] | Waiting:
        pending = self._pending()
        self._view = self._deadline.within(lambda: self._looker.look(pending))
        self._failing = {}
        for gate in pending:
            outcome, detail = _judge(gate, self._view)
            if outcome is not Outcome.FAILED:
                self._keep(gate, outcome, detail, begun)
            elif off := idle(gate, self._view):
                self._keep(gate, outcome, f"{off} ({detail})", begun)
            else:
                self._failing[gate.id] = detail
        if not self._failing or self._deadline.passed:
            return Met(None)
        self._seen |= signs(self._view)
        first = next(iter(self._failing))
        says = f"{len(self._results)} of {len(self._gates)} gates pass; {first}: {self._failing[first]}"
        # a number, because things that alternate independently have very many combinations
        return Waiting(says, (len(self._seen), len(self._results)))

    def _pending(self) -> list[Gate]:
        return [gate for gate in self._gates if gate.id not in self._results]

    def _keep(self, gate: Gate, outcome: Outcome, detail: str, begun: float) -> None:
        seconds = self._access.clock() - begun
        self._results[gate.id] = RowResult(gate.id, gate.title, gate.where, "", outcome, detail, seconds)


def _left_out(gate: Gate, tags: Sequence[Tag]) -> RowResult | None:
    windows = running(WINDOWS, tags)
    if (gate.asks or gate.windows) and not windows:
        outcome, why = Outcome.NOT_APPLICABLE, "the lab has no Windows node"
    elif gate.real and any(is_standin(tag) for tag in windows):
        outcome, why = Outcome.REHEARSAL, "the Windows node is a stand-in, which has no Windows kernel"
    else:
        return None
    return RowResult(gate.id, gate.title, gate.where, "", outcome, why)


def _judge(gate: Gate, view: View) -> tuple[Outcome, str]:
    try:
        return Outcome.PASSED, gate.check(view)
    except NotApplicable as reason:
        return Outcome.NOT_APPLICABLE, str(reason)
    except CheckFailed as failed:
        return Outcome.FAILED, str(failed)


class _Looker:
    """Looks at the cluster, and less often at Windows nodes."""

    def __init__(self, tags: Sequence[Tag], access: Access) -> None:
        self._tags = tuple(tags)
        self._access = access
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}  # the time and the answer

    def look(self, gates: Sequence[Gate]) -> View:
        """Look once, at only what these gates need."""
        view = View(self._tags, in_programs=self._access.in_programs, idle=self._access.idle())
        try:
            view.readyz = self._access.kubectl.run("get", "--raw=/readyz?verbose")
            view.objects = Objects.look(self._access.kubectl, KINDS)
        except WinlabError as error:
            view.problem = said(error)
        for tag in running(WINDOWS, self._tags):
            if state := view.idle.get(tag.node):
                view.windows[tag.node] = view.kernels[tag.node] = f"it is {state}"
                continue
            if any(gate.asks == "status" for gate in gates):
                view.windows[tag.node] = self._ask(tag, "status", windows_gates.status)
            if any(gate.asks == "kernel" for gate in gates):
                view.kernels[tag.node] = self._ask(tag, "kernel", windows_gates.kernel)
        return view

    def _ask(self, tag: Tag, what: str, ask: Callable[[Access, Tag], Answer]) -> Answer | str:
        when, known = self._answers.get((tag.node, what), (float("-inf"), ""))
        answer: Answer | str = known
        now = self._access.clock()
        if now - when < SLOW_LOOK:
            return answer
        try:
            answer = ask(self._access, tag)
        except (WinlabError, CheckFailed) as error:
            answer = said(error)
        self._answers[tag.node, what] = (now, answer)
        return answer

    def explain(self, gate: Gate, view: View, detail: str) -> str:
        """A failure, with the last warning event of each object concerned."""
        about = gate.about(view)
        if not about:
            return detail
        try:
            answer = self._access.kubectl.get("events", "--all-namespaces", "--field-selector=type=Warning")
        except WinlabError:
            return detail
        events = Objects({"kind": "Event", **item} for item in answer.get("items", []))
        last = [(name, warnings[-1]) for kind, name in about if (warnings := events.warnings(kind, name))]
        messages = [
            f"{name}: {event.get('reason')}: {said(Exception(str(event.get('message', ''))))}" for name, event in last
        ]
        return detail + (f" ({'; '.join(messages[:3])})" if messages else "")
