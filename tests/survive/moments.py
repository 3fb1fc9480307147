"""When a command is killed: the moments of its steps, recognised by the events that it prints. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

BEGINNING = "beginning"  # the step was not done, and has just started
MIDDLE = "middle"  # half of its usual time is over, or half of its work is done
LATE = "late"  # nine tenths
END = "end"  # it has just reported that it is done
MOMENTS = (BEGINNING, MIDDLE, LATE, END)
PARTS = ("25 %", "50 %", "75 %")  # of a step's usual time, however short it is

COMMAND = "the command"  # what a command does before its first step and after its last one
SHORT = 2.0  # seconds: the middle of a shorter step is its first report, and it has no late moment
VOLUMES = ("disk", "seed", "answer", "media")  # the first words of the steps that make a machine's volumes
# "payload" looks up what a CD must hold until the nodes have the CD, which is written once. The others wait for a peer,
# which may answer a busy machine's look too late
LOOKS = ("payload", "boot", "kubeconfig", "ready")
LEAST = 0.3  # of the usual time: how long a step that resumes an earlier attempt works before its late moment


class Point(NamedTuple):
    """A step, by its title, and a moment of it."""

    step: str
    moment: str


def stays_done(step: str) -> bool:
    """Whether a step that was done is not done again after a kill.

    A machine's volumes take a second or two, and are recreated until the machine is defined: only then they are whole
    for certain.
    """
    return step.partition(" ")[0] not in VOLUMES


def only_looks(step: str) -> bool:
    """Whether a step that starts once more looks and waits, and does no work again."""
    return step.partition(" ")[0] in LOOKS


def points(usual: Mapping[str, float]) -> list[Point]:
    """All points of a command, by the steps that it had to do and how long they took when nothing disturbed it."""
    every = [Point(COMMAND, MIDDLE)]
    for step, seconds in usual.items():
        moments = MOMENTS if seconds >= SHORT else (BEGINNING, MIDDLE, END)
        every += [Point(step, moment) for moment in moments]
    return [*every, Point(COMMAND, END)]


class Watch:
    """Follows a command's events and says when a point has come.

    :param wanted: the points that count.
    :param usual: how long each step took when nothing disturbed it, in seconds.
    :param spent: how long earlier commands, which were killed, worked on each step: a guest keeps running meanwhile.
    :param now: when the command was started, on the clock that the other methods are given.
    """

    def __init__(
        self, wanted: Iterable[Point], usual: Mapping[str, float], spent: Mapping[str, float], now: float
    ) -> None:
        self._wanted = set(wanted)
        self._usual = usual
        self._spent = spent
        self._since = {COMMAND: now}

    def hear(self, event: Mapping[str, Any], now: float) -> Point | None:
        """The point that has come with this event, if any."""
        kind, step = event.get("event"), str(event.get("step", ""))
        if kind == "RunStarted":
            self._since.pop(COMMAND, None)
        elif kind == "RunEnded" and event.get("exit_code") == 0:
            return self._if_wanted(COMMAND, END)
        elif kind == "StepStarted":
            self._since[step] = now
            return self._if_wanted(step, BEGINNING)
        elif kind == "StepProgress":
            return self._reported(step, event.get("fraction"))
        elif kind in ("StepDone", "StepFailed"):
            self._since.pop(step, None)
            return self._if_wanted(step, END) if kind == "StepDone" else None
        return None

    def due(self, now: float) -> Point | None:
        """The point that has come by time alone, if any."""
        for step, since in self._since.items():
            usual, age = self._usual.get(step, 0.0), now - since
            for part in PARTS:
                if age >= usual * int(part.split()[0]) / 100 and (point := self._if_wanted(step, part)):
                    return point
            if step == COMMAND or usual >= SHORT:
                if age >= usual / 2 and (point := self._if_wanted(step, MIDDLE)):
                    return point
                late = age + self._spent.get(step, 0.0) >= 0.9 * usual and age >= LEAST * usual
                if step != COMMAND and late and (point := self._if_wanted(step, LATE)):
                    return point
        return None

    def _reported(self, step: str, fraction: float | None) -> Point | None:
        if fraction is None:
            return self._if_wanted(step, MIDDLE) if self._usual.get(step, 0.0) < SHORT else None
        if fraction >= 0.9:
            return self._if_wanted(step, LATE)
        return self._if_wanted(step, MIDDLE) if fraction >= 0.5 else None

    def _if_wanted(self, step: str, moment: str) -> Point | None:
        point = Point(step, moment)
        if point not in self._wanted:
            return None
        self._wanted.discard(point)
        return point
