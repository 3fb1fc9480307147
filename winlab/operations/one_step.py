"""Work that is a single step, so that it is reported and interrupted like any other step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from winlab.engine import engine
from winlab.engine.step import Step
from winlab.events import Listener, Progress
from winlab.steps.states import WORK

T = TypeVar("T")


def perform(
    name: str, work: Callable[[Progress], T], tell: Listener, usual: float, *, lab: str = "", node: str = ""
) -> T:
    """Do the work; returns its result.

    :param name: the step's name in events.
    :param usual: how long it usually takes, in seconds.
    :param lab: the lab that it is done for.
    :param node: its node, if it is one node's.
    :raises WinlabError: the work failed.
    """
    results: list[T] = []
    step = Step(WORK(lab, node, of=name), lambda progress: results.append(work(progress)), lambda: False, usual=usual)
    engine.run([step], tell, lab, name)
    return results[0]
