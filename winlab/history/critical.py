"""The critical path of a run: the chain of steps that it took as long as."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.history.runs import RunRecord, StepRecord


@dataclass(frozen=True)
class Link:
    """A step on the critical path.

    :param waited: seconds between the end of the step before it, or the run's begin, and its own begin: it waited for
        its turn, as steps do that write volumes.
    """

    step: StepRecord
    waited: float


def path(run: RunRecord) -> list[Link]:
    """The chain that ends with the step that ended last, each link with the step before it that it waited for longest.

    Empty if nothing ran, or if the journal does not say which steps come after which.
    """
    by_number = {step.number: step for step in run.steps if step.begun is not None}
    if not by_number or (len(run.steps) > 1 and not any(step.planned.after for step in run.steps)):
        return []
    links: list[Link] = []
    step: StepRecord | None = max(by_number.values(), key=lambda one: (one.ended, one.number))
    while step is not None:
        # a step comes after earlier ones only; whatever else a damaged journal says could be a circle
        before = [by_number[number] for number in step.planned.after if number < step.number and number in by_number]
        last = max(before, key=lambda one: (one.ended, one.number), default=None)
        assert step.begun is not None
        links.append(Link(step, max(0.0, step.begun - (last.ended if last else 0.0))))
        step = last
    return links[::-1]
