"""A few kills, chosen by a seed: what every run of the integration tests plays."""

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
MOST = 10  # commands: a bound for one that never comes further


def seed() -> str:
    """Today's seed, or the one that is to be repeated."""
    return os.environ.get(VARIABLE) or datetime.datetime.now(datetime.UTC).date().isoformat()


def choose(seed: str, steps: Iterable[str], number: int) -> list[Point]:
    """So many points of the steps with these titles."""
    every = [Point(step, moment) for step in steps for moment in (BEGINNING, MIDDLE, END)]
    return sorted(random.Random(seed).sample(every, number))


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


def play(wired: Wired, seed: str, wanted: Iterable[Point], *command: str) -> list[Sampled]:
    """Run the command again and again, killed at one point each time, until all points came.

    It ends, too, when a command ends by itself: a point is missing then, for its step was done already.
    """
    left, played = set(wanted), list[Sampled]()
    chance = random.Random(f"signals {seed}")
    while left and len(played) < MOST:
        number = chance.choice((signal.SIGKILL, signal.SIGTERM))
        outcome = wired.run(*command, wanted=left, number=number)
        if not outcome.fired:
            break
        left.discard(outcome.fired[0][0])
        played.append(Sampled(number, outcome))
    return played
