"""Applying objects to a cluster whose API server may be busy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from winlab.adapters.kube.kubectl import Kubectl, is_busy
from winlab.engine.run import Run
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError
from winlab.events import Progress
from winlab.steps import controllers

SILENCE = 120.0  # seconds on hardware that an API server may be too busy for a request


def apply(kubectl: Kubectl, objects: Sequence[dict[str, Any]], run: Run, progress: Progress) -> None:
    """Apply objects. A request that a busy API server did not complete is sent again; that is safe to repeat.

    :raises ClusterError: the API server refuses an object, or stays busy.
    :raises GuestError: it is busy, and no controller's machine runs any longer.
    """
    last: ClusterError | None = None

    def look() -> Met[None] | Waiting:
        nonlocal last
        try:
            kubectl.apply(objects)
        except ClusterError as error:
            if not is_busy(error):
                raise
            last = error
            return Waiting(f"the API server is busy: {error.why or error.what}")
        return Met(None)

    def give_up(_: Waiting) -> ClusterError:
        assert last is not None  # only a failure waits
        return last

    controllers.until(run, look, progress, give_up, stall=run.pace.usual(SILENCE))
