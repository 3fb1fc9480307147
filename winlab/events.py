"""Events: what winlab reports while it works. The terminal, ``--output json`` and the journal only listen.

An event is a frozen value. As JSON (:func:`record`) it is one object, its class in the field ``event``; docs/events.md
lists all of them and is generated from this file. A new field does not change :data:`SCHEMA`; removing a field, or
changing its meaning, does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from winlab.errors import Failure
from winlab.printable import printable

SCHEMA = 1


def _field(words: str, default: Any) -> Any:
    """A field with its description in docs/events.md."""
    return field(default=default, metadata={"words": words})


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened."""

    schema: int = _field("the version of this description", SCHEMA)
    time: float = field(default_factory=time.time, metadata={"words": "seconds since 1970, UTC"})
    lab: str = _field("the lab; empty if there is none", "")
    done: int = _field("how many steps of the run are done, in this run or an earlier one", 0)
    total: int = _field("how many steps the run has; 0 outside a run", 0)

    def __post_init__(self) -> None:
        """Make the texts printable: guests and mirrors may have written parts of them."""
        for name, value in vars(self).items():
            if isinstance(value, str):
                object.__setattr__(self, name, printable(value))


@dataclass(frozen=True)
class Planned:
    """A step of a run, before it begins."""

    step: str = _field("its title, for display", "")
    reaches: str = _field("the kind of state that it reaches", "")
    lab: str = _field("the lab that it belongs to; empty for what labs share", "")
    node: str = _field("the node that it belongs to; empty if there is none", "")
    usual: float = _field("how long it usually takes, in seconds; 0 if unknown", 0.0)


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A run has started; its steps are known."""

    steps: tuple[Planned, ...] = _field("all steps of the run, see below", ())


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """A run has ended, successfully or not. It is a command's last event."""

    exit_code: int = _field("0, that of the first failure, or 130 if interrupted; see docs/exit-codes.md", 0)
    failures: tuple[Failure, ...] = _field("all failures, the earliest first; see below", ())
    support: str = _field(
        "the archive with everything about the failures (docs/support.md); empty if there is none", ""
    )


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """Something that happened to a step."""

    step: str = _field("its title, for display", "")
    reaches: str = _field("the kind of state that it reaches; empty for work outside a run", "")
    node: str = _field("the node that it belongs to; empty if there is none", "")
    seconds: float = _field("how long it has taken so far", 0.0)
    usual: float = _field("how long it usually takes, in seconds; 0 if unknown", 0.0)


@dataclass(frozen=True, kw_only=True)
class StepChecking(StepEvent):
    """winlab checks whether the step is already done."""


@dataclass(frozen=True, kw_only=True)
class StepStarted(StepEvent):
    """The step was not done yet and starts."""


@dataclass(frozen=True, kw_only=True)
class StepProgress(StepEvent):
    """A running step reports its progress."""

    text: str = _field("what is being done or waited for", "")
    fraction: float | None = _field("how much of it is done, 0 to 1; null if unknown", None)


@dataclass(frozen=True, kw_only=True)
class StepSkipped(StepEvent):
    """The step was already done."""


@dataclass(frozen=True, kw_only=True)
class StepDone(StepEvent):
    """The step did its work."""


@dataclass(frozen=True, kw_only=True)
class StepFailed(StepEvent):
    """The step failed. Running steps are asked to stop; no others start."""

    failure: Failure = field(metadata={"words": "why, see below"})


@dataclass(frozen=True, kw_only=True)
class Note(Event):
    """A warning or a hint that belongs to no step."""

    text: str = _field("the message", "")


Listener = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """A listener that does nothing."""


def record(event: Event) -> dict[str, Any]:
    """An event as one JSON object."""
    return {"event": type(event).__name__, **asdict(event)}


class Progress(Protocol):
    """How a long job reports its progress."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """Report what is being done or waited for; *fraction* is 0 to 1 if it is known."""


class Quiet:
    """A :class:`Progress` that reports nothing."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """Do nothing."""


class Told:
    """A :class:`Progress` for work outside a run: it reports to a listener."""

    def __init__(self, tell: Listener, name: str) -> None:
        self._tell = tell
        self._name = name
        self._begun = time.monotonic()

    def say(self, text: str, fraction: float | None = None) -> None:
        """Report it to the listener."""
        seconds = time.monotonic() - self._begun
        self._tell(StepProgress(step=self._name, text=text, seconds=seconds, fraction=fraction))
