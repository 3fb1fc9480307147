"""Waiting for something that happens elsewhere, until it is there or nothing moves any more.

A wait has no total time. It looks repeatedly, and gives up when nothing new has shown for too long. An emulated guest
takes ten times as long as hardware, and may do so as long as it makes progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from winlab.events import Progress

POLL = 3.0  # seconds between two looks

T = TypeVar("T")


@dataclass(frozen=True)
class Met(Generic[T]):
    """What was waited for is there; *value* is what the caller wanted of it."""

    value: T


@dataclass(frozen=True)
class Waiting:
    """It is not there yet.

    :param says: what is waited for and why, for people.
    :param sign: what is seen of the thing. A sign never seen before is progress; returning to an earlier one is not, so
        that a thing that alternates is given up, too.
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
    :param give_up: makes the error from the last look, when there was no progress for *stall* seconds.
    :param poll: seconds between two looks.
    :raises Exception: what *give_up* makes, and whatever *look* raises.
    """
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
        time.sleep(poll)
