"""Work that shows its progress: single steps, and reading files for a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from winlab.cli.common import Output

if TYPE_CHECKING:
    from winlab.design.plan.model import Plan
    from winlab.design.spec.model import Spec
    from winlab.events import Progress
    from winlab.lab import Lab

T = TypeVar("T")


def plan_of(lab: Lab, spec: Spec) -> Plan:
    """The lab's plan. Progress in reading large files goes to standard error, whatever the output format.

    :raises UsageError: this host can't provide what the spec asks for.
    """
    from winlab.cli.progress import shown

    with shown(Output.TABLE) as tell:
        return lab.plan(spec, listener=tell)


def watched(name: str, work: Callable[[Progress], T], output: Output, usual: float) -> T:
    """Do the work as a step, so that it is shown like any other; returns its result."""
    from winlab.cli.progress import shown
    from winlab.operations import one_step

    with shown(output) as tell:
        return one_step.perform(name, work, tell, usual)
