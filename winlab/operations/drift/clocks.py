"""The guests' clocks: where the time is wrong, certificates and tokens are not valid yet, or no longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial

from winlab.adapters.guests.connect import connect
from winlab.adapters.vm import domains
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.errors import GuestError
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject, Tier
from winlab.steps.power import clock
from winlab.threads import Threads

LOGIN = 10  # seconds


def clocks(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Each running guest's clock, unless a fault made it wrong by exactly that much."""
    running = [node for node in subject.nodes if domains.is_running(subject.run.on(node).conn, node)]
    progress.say("comparing clocks")
    with Threads(max_workers=8) as pool:
        for finding in pool.map(partial(_look, subject.run), running):
            if finding is not None:
                yield finding


def _look(run: Run, node: NodePlan) -> Finding | None:
    tag = tags.of(run.plan, node)
    try:
        with closing(connect(tag, run.folder, timeout=LOGIN)) as guest:
            off = clock.difference(guest, tag, clock.skew(run.on(node).conn, node))
    except GuestError:
        return None  # the inspection of guests reports it
    if abs(off) < clock.WRONG:
        return None
    actual = f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
    drift = Drift("node", node.name, "clock", "as the host's", actual, "set by the host's", repairable=True)
    return Finding(drift, partial(_settle, run, node), tier=Tier.SERVICE)


def _settle(run: Run, node: NodePlan, progress: Progress) -> None:
    tag = tags.of(run.plan, node)
    with closing(connect(tag, run.folder, timeout=LOGIN)) as guest:
        clock.settle(guest, tag, progress, clock.skew(run.on(node).conn, node))
