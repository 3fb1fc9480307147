"""The named steps that make a lab. Each can tell from reality whether it is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import Pool
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.engine.durations import Durations
from winlab.lab_folder import LabState


@dataclass(frozen=True)
class Context:
    """What all steps of one run share."""

    plan: Plan
    state: LabState
    conn: Connection
    pool: Pool
    mirror: str | None
    scale: float  # how much slower than on hardware a guest runs here; for usual times and limits
    known: Durations  # how long things took before
    consent: bool = False  # the terms of Microsoft's evaluation media were accepted
    check_images: Callable[[], None] | None = None  # against the lock file, whenever an image has come
    stock: Stock = field(default_factory=Stock)  # where the files are that the plan knows by their contents
    suffix: str = ""  # of the names of steps that every lab has, where two labs are made at once
