"""The input of an add-on's steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.design.catalog.artifact import Artifact, Obtained
    from winlab.design.plan.addon_plan import AddonPlan
    from winlab.engine.run import Run
    from winlab.events import Progress


@dataclass(frozen=True)
class Installation:
    """One add-on that is being installed in a lab's cluster.

    :param run: the run of the plan, with the lab's folder.
    :param row: the add-on's part of the plan: its versions and artifacts.
    :param obtain: fetches artifacts that the add-on requires, such as published manifests, from the lab's source.
    """

    run: Run
    row: AddonPlan
    obtain: Callable[[Sequence[Artifact], Progress], list[Obtained]]
