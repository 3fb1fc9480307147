"""What the engine and the builders tell: events. The terminal, ``--output json`` and the journal only listen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Kind(StrEnum):
    """What happened to a step."""

    CHECKING = "checking"  # looking whether it is done already
    STARTED = "started"
    PROGRESS = "progress"
    SKIPPED = "skipped"  # it was done already
    DONE = "done"
    FAILED = "failed"
    NOTE = "note"  # said by no step: a warning, a hint


@dataclass(frozen=True)
class Event:
    """One thing that happened. ``usual`` and ``seconds`` are seconds, ``fraction`` is 0 to 1 or None."""

    kind: Kind
    step: str
    text: str = ""
    seconds: float = 0.0
    usual: float = 0.0
    fraction: float | None = None
    time: float = field(default_factory=time.time)


Listener = Callable[[Event], None]


class Progress(Protocol):
    """How a long job says where it is."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """Tell what is being done or waited for; *fraction* is 0 to 1 where it is known."""


class Quiet:
    """A :class:`Progress` that tells nobody."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """Do nothing."""


class Told:
    """A :class:`Progress` of something that is done before any step: it tells a listener."""

    def __init__(self, tell: Listener, name: str) -> None:
        self._tell = tell
        self._name = name
        self._begun = time.monotonic()

    def say(self, text: str, fraction: float | None = None) -> None:
        """Tell it."""
        self._tell(Event(Kind.PROGRESS, self._name, text, time.monotonic() - self._begun, fraction=fraction))
