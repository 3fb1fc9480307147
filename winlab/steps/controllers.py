"""Whether a lab's controllers can answer at all: waiting for an API server whose machine has ended is in vain."""

from __future__ import annotations

from winlab.adapters.vm import domains
from winlab.engine.run import Run
from winlab.errors import GuestError, logs

ENDED = (*domains.OFF, domains.CRASHED, "gone")


def require_one(run: Run) -> None:
    """Check that the machine of a controller runs; for whoever got no answer from the API server.

    :raises GuestError: none does, and the API server is the lab's own.
    """
    states = {node.name: domains.state(run.conn, node.domain) for node in run.plan.nodes if node.role == "controller"}
    if states and all(state in ENDED for state in states.values()):
        name, state = next(iter(states.items()))
        raise GuestError(
            f"The API server does not answer: '{name}' is {state}.",
            why="Its machine ended while winlab waited: somebody switched it off, or its QEMU was killed.",
            cure="Run the same command again: it starts the machine, and goes on.",
            evidence=logs(name, run.lab),
        )
