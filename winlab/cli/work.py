"""Work that shows its progress: reading files for a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from winlab.cli.session import current

if TYPE_CHECKING:
    from winlab import Lab, Proposal, Spec


def plan_of(lab: Lab, spec: Spec, *, machines: bool = True, again: Mapping[str, str] | None = None) -> Proposal:
    """The lab's plan.

    :param machines: whether nodes are to be made of it.
    :param again: nodes to make again, and the hypervisor of each.
    :raises UsageError: this host can't provide what the spec asks for.
    """

    with current().shown() as tell:
        return lab.plan(spec, machines=machines, again=again, listener=tell)
