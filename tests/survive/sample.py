"""A few kills, chosen by a seed: every run of the integration tests does them."""

from __future__ import annotations

import datetime
import os
import random
import signal
from collections.abc import Iterable
from dataclasses import dataclass

from survive.command import Outcome, Wired
from survive.moments import BEGINNING, END, MIDDLE, Point

VARIABLE = "WINLAB_SURVIVE_SEED"
MOST = 10  # commands: a bound for a life without progress


def seed() -> str:
    """Today's seed, or the one that is to be repeated."""
    return os.environ.get(VARIABLE) or datetime.datetime.now(datetime.UTC).date().isoformat()


def choose(
    seed: str, steps: Iterable[str], number: int, moments: tuple[str, ...] = (BEGINNING, MIDDLE, END)
) -> list[Point]:
    """So many points of the steps with these titles."""
    every = [Point(step, moment) for step in steps for moment in moments]
    return sorted(random.Random(seed).sample(every, number))


def signal_of(seed: str) -> signal.Signals:
    """SIGKILL or SIGTERM."""
    return random.Random(f"signal {seed}").choice((signal.SIGKILL, signal.SIGTERM))


@dataclass(frozen=True)
class Sampled:
    """A command that was killed.

    :param number: the signal.
    """

    number: signal.Signals
    outcome: Outcome

    def __str__(self) -> str:
        step, moment = self.outcome.fired[0][0]
        return f"{self.number.name} at {step}, {moment}: exit code {self.outcome.code}, left {self.outcome.left}"


def play(wired: Wired, wanted: Iterable[Point], last: Point, number: signal.Signals, *command: str) -> list[Sampled]:
    """Run the command again and again, killed at one point each time, until *last* came.

    Steps run at the same time: the kill at one point may come when another's step is done and not yet reported.
    That point does not come any more.

    :param last: a point that comes in any case.
    """
    left, played = {*wanted, last}, list[Sampled]()
    while last in left and len(played) < MOST:
        outcome = wired.run(*command, wanted=left, number=number)
        if not outcome.fired:
            break
        left.discard(outcome.fired[0][0])
        played.append(Sampled(number, outcome))
    return played
