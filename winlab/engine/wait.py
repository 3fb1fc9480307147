"""Waiting for something that happens elsewhere, until it has happened or no longer makes progress.

A wait has no total time limit. It looks repeatedly, and gives up after too long without anything new. An emulated guest
takes ten times as long as hardware, and may do so as long as it makes progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from winlab import stopping
from winlab.events import Progress

POLL = 3.0  # seconds between two looks

T = TypeVar("T")


@dataclass(frozen=True)
class Met(Generic[T]):
    """The condition is met; *value* is what the caller wanted to know."""

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
    """Look until the condition is met; returns its value.

    :param look: looks once.
    :param give_up: makes the error from the last look after *stall* seconds without progress.
    :param poll: seconds between two looks.
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
