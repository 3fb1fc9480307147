"""Waits for what a cluster's API server reports; gives up once no machine of the lab's controllers runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from winlab.adapters.vm import domains
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, HostError, logs
from winlab.events import Progress

ENDED = (*domains.OFF, domains.CRASHED, "gone")

T = TypeVar("T")


def until(
    run: Run,
    look: Callable[[], Met[T] | Waiting],
    progress: Progress,
    give_up: Callable[[Waiting], Exception],
    *,
    stall: float,
    poll: float = wait.POLL,
) -> T:
    """Poll until the condition is met, as :func:`winlab.engine.wait.until` does, as long as a controller runs.

    :param look: asks the API server once.
    :raises GuestError: no controller of the lab runs any longer.
    """

    def attentive() -> Met[T] | Waiting:
        seen = look()
        if isinstance(seen, Waiting):
            _require_one(run)
        return seen

    return wait.until(attentive, progress, give_up, stall=stall, poll=poll)


def _require_one(run: Run) -> None:
    """Check that the machine of a controller runs.

    :raises GuestError: none does, and the API server is the lab's own.
    """
    try:
        states = {one.name: domains.state(run.on(one).conn, one) for one in run.plan.nodes if one.role == "controller"}
    except HostError:  # libvirt restarts; the API server does not need it
        return
    if states and all(state in ENDED for state in states.values()):
        name, state = next(iter(states.items()))
        raise GuestError(
            f"The API server does not answer: '{name}' is {state}.",
            why="Its machine ended while winlab waited: someone switched it off, or its QEMU was killed.",
            cure="Run the same command again: it starts the machine and continues.",
            evidence=logs(name, run.lab),
        )
