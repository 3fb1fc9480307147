"""What the parts of a lab share: its name, its site, and whose it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from winlab import operations, settings
from winlab.errors import UsageError
from winlab.site import Site

if TYPE_CHECKING:
    from winlab.operations.planning import Proposal
    from winlab.steps.sources import Origin


class Base:
    """What the parts of a lab share."""

    def __init__(self, name: str = settings.DEFAULT_LAB, site: Site | None = None, *, anyone: bool = False) -> None:
        self.name = name
        self.site = site or Site()
        self.anyone = anyone

    def __repr__(self) -> str:
        return f"Lab({self.name!r})"

    def _require_owner(self) -> None:
        if not self.anyone:
            operations.owner.require(self.name, self.site)

    def _consent(self, plan: Proposal, accepted: bool, origin: Origin | None) -> bool:
        """Whether missing media may be downloaded for a plan of this lab.

        :raises UsageError: it is another lab's plan.
        """
        if plan.plan.lab != self.name:
            raise UsageError(
                f"The plan is for the lab '{plan.plan.lab}', and this is the lab '{self.name}'.",
                cure="Pass what this lab's plan() returned.",
            )
        offline = origin is not None and origin.bundle is not None
        return operations.consent.settle(plan.plan, self.site, accepted=accepted, offline=offline)
