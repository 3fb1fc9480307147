"""Repeats work in a node, which is safe because winlab's scripts do only what is missing.

These functions never do work that must not be done twice: docs/worker-scripts.md says what that is, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import domains
from winlab.design.contract.call import Call, R
from winlab.design.plan import facts
from winlab.design.plan.node_plan import NodePlan
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, UnreachableError
from winlab.events import Progress, report
from winlab.steps import evidence

T = TypeVar("T")
RUNS = 3  # of work that is repeated while the connection is lost
# Seconds on hardware for which a node may not answer. WinRM gets two minutes before ssh is used in its place
SILENT_SECONDS = 300.0


def run(there: NodeScripts, call: Call[R], progress: Progress, is_on: Callable[[], bool]) -> R:
    """Run a script in a node, and repeat it if the connection is lost; see :func:`act`."""
    return act(there, call.script, progress, lambda: there.run(call, progress.say), is_on)


def act(there: NodeScripts, what: str, progress: Progress, work: Callable[[], T], is_on: Callable[[], bool]) -> T:
    """Do something in a node; if the connection is lost, wait until the node answers and do it again.

    The error names the known cause of a failure.

    :param what: its name, for messages.
    :param is_on: whether the node's machine runs. There is no wait for one that does not.
    :raises UnreachableError: the connection was lost :data:`RUNS` times, or the node no longer answers.
    :raises GuestError: it failed.
    """
    there.tell = partial(report, progress)
    try:
        return repeat(there, what, progress, work, partial(_await_answer, there, progress, is_on))
    except GuestError as error:
        evidence.name_cause(error)
        raise


def repeat(
    there: NodeScripts,
    what: str,
    progress: Progress,
    work: Callable[[], T],
    await_answer: Callable[[UnreachableError], object],
) -> T:
    """Do something in a node, and repeat it while the connection is lost, at most :data:`RUNS` times.

    Windows loses its network for some seconds whenever an adapter becomes a virtual switch, by winlab's own script or
    by the agent of a CNI plug-in. If WinRM stays unresponsive, the wait ends by ssh.

    :param what: its name, for messages.
    :param await_answer: waits until the node answers; receives how the connection was lost.
    :raises UnreachableError: the connection was lost each time.
    """
    for attempt in range(1, RUNS + 1):
        try:
            return work()
        except UnreachableError as error:
            if attempt == RUNS:
                raise
            lost = error
        node = there.tag.node
        progress.say(f"the connection to {node} was lost: {what} is run again ({attempt + 1}/{RUNS})")
        there.disconnect()
        await_answer(lost)
    raise AssertionError("a loop without an end")


def is_on(run: Run, node: NodePlan) -> Callable[[], bool]:
    """Whether the node's machine runs, each time it is asked."""
    return partial(domains.is_running, run.on(node).conn, node)


def _await_answer(there: NodeScripts, progress: Progress, is_on: Callable[[], bool], lost: UnreachableError) -> None:
    """Wait until a node answers.

    :raises UnreachableError: its machine does not run, or it does not answer for too long.
    """
    node, limit = there.tag.node, facts.silence(SILENT_SECONDS, there.scale)

    def look() -> Met[None] | Waiting:
        if not is_on():
            raise lost
        says = f"waiting for {node} to answer again"
        try:
            there.execute(["hostname"])
        except UnreachableError:
            there.disconnect()
        except GuestError as error:  # services start one by one
            says += f"; it says: {(error.why or error.what).splitlines()[0]}"
        else:
            return Met(None)
        return Waiting(says)

    def give_up(_: Waiting) -> UnreachableError:
        return UnreachableError(
            f"'{node}' has not answered again for {limit / 60:.0f} min.",
            why="\n".join(filter(None, (lost.what, lost.why))),
            cure=lost.cure,
            evidence=f"winlab serial {node} --log",
        )

    wait.until(look, progress, give_up, stall=limit)
