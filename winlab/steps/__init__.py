"""The named steps that make a lab. Each can tell from reality whether it is done."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.plan import Plan
from winlab.state import LabState
from winlab.vm.connection import Connection
from winlab.vm.volumes import Pool


@dataclass(frozen=True)
class Context:
    """What all steps of one run share."""

    plan: Plan
    state: LabState
    conn: Connection
    pool: Pool
    mirror: str | None
    scale: float  # how much slower than on hardware a guest runs here; for usual times only
