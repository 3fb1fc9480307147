"""Waits for an external condition until it is met or there is no more progress.

A wait has no total time limit. It polls, and gives up after too long without anything new. An emulated guest takes ten
times as long as hardware, and may do so as long as it makes progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from winlab import stopping
from winlab.events import Progress

POLL = 3.0  # seconds between two polls

T = TypeVar("T")


@dataclass(frozen=True)
class Met(Generic[T]):
    """The condition is met; *value* is what the caller needs."""

    value: T


@dataclass(frozen=True)
class Waiting:
    """The condition is not met yet.

    :param says: what is waited for and why, for people.
    :param sign: the state that was seen. A state never seen before is progress. A return to an earlier one is not:
        the wait also ends if the state alternates.
    :param alive: something else shows that it is alive.
    """

    says: str
    sign: Hashable = None
    alive: bool = False


def until(
    look: Callable[[], Met[T] | Waiting],
    progress: Progress,
    give_up: Callable[[Waiting], Exception],
    *,
    stall: float,
    poll: float = POLL,
) -> T:
    """Poll until the condition is met; returns its value.

    :param look: checks once.
    :param give_up: makes the error from the last poll after *stall* seconds without progress.
    :param poll: seconds between two polls.
    :raises Exception: the error that *give_up* makes, and whatever *look* raises.
    :raises Stopped: the work was asked to stop.
    """
    patience = stopping.Patience()
    signs: set[Hashable] = set()
    since = time.monotonic()
    while True:
        seen = look()
        if isinstance(seen, Met):
            return seen.value
        progress.say(seen.says)
        if seen.alive or seen.sign not in signs:
            signs.add(seen.sign)
            since = time.monotonic()
        elif time.monotonic() - since > stall:
            raise give_up(seen)
        patience.sleep(poll)
