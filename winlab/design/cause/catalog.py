"""Every known cause; earlier ones are more specific. What ends a run's step and what only explains it are rows of this
one table: ``winlab support explain`` reads all of them, steps only those that end something."""

from __future__ import annotations

from winlab.design.cause import cluster, first_start, sealing, setup, starting
from winlab.design.cause.model import Cause

CAUSES: tuple[Cause, ...] = (
    *setup.CAUSES,
    *sealing.CAUSES,
    *first_start.CAUSES,
    *cluster.CAUSES,
    *starting.CAUSES,
)
