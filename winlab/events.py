"""Events: what winlab reports while it works. The terminal, ``--events`` and the journal only listen.

An event is a frozen value. As JSON (:func:`record`) it is one object, its class in the field ``event``; docs/events.md
lists all of them and is generated from this file. A new field does not change :data:`SCHEMA`; removing a field, or
changing its meaning, does.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

from winlab import stopping
from winlab.errors import Failure
from winlab.printable import printable, within

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
    run: str = _field("the run that it belongs to; empty outside a run", "")
    elapsed: float = _field("seconds since the run began, whatever happens to the clock; 0 outside a run", 0.0)
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
    after: tuple[int, ...] = _field("the steps that it comes after, by their places in this list; the first is 1", ())
    estimated: bool = _field("whether `usual` is an estimate: the time was not measured on this host yet", False)

    @property
    def measured(self) -> float:
        """How long it usually takes, in seconds, as measured on this host; 0 if it was not."""
        return 0.0 if self.estimated else self.usual


@dataclass(frozen=True, kw_only=True)
class RunStarted(Event):
    """A run has started; its steps are known."""

    steps: tuple[Planned, ...] = _field("all steps of the run, see below", ())
    command: str = _field("what the run is for, such as `create` or `push node-1`", "")
    pid: int = _field("the process that runs it; 0 if unknown", 0)
    user: str = _field("that process's user", "")
    version: str = _field("that process's version of winlab", "")


@dataclass(frozen=True, kw_only=True)
class RunEnded(Event):
    """A run has ended, successfully or not. It is a command's last event."""

    exit_code: int = _field("0, that of the first failure, or 130 if interrupted or stopped; see docs/exit-codes.md", 0)
    failures: tuple[Failure, ...] = _field("all failures, the earliest first; see below", ())
    support: str = _field(
        "the archive with everything about the failures (docs/support.md); empty if there is none", ""
    )


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """Something that happened to a step."""

    number: int = _field("its place in the `steps` of `RunStarted`; the first is 1; 0 for work outside a run", 0)
    step: str = _field("its title, for display", "")
    reaches: str = _field("the kind of state that it reaches; empty for work outside a run", "")
    node: str = _field("the node that it belongs to; empty if there is none", "")
    seconds: float = _field("how long it has taken so far", 0.0)
    usual: float = _field("how long it usually takes, in seconds; 0 if unknown", 0.0)
    estimated: bool = _field("whether `usual` is an estimate: the time was not measured on this host yet", False)


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
class NodeTransport(StepEvent):
    """winlab reaches a node by another transport than before, or by none although the node is up."""

    text: str = _field("the message", "")
    transport: str = _field("the one that winlab uses from now on: `winrm` or `ssh`; empty if neither responds", "")
    unresponsive: tuple[str, ...] = _field("the transports that don't respond", ())
    sign: str = _field("what shows that the node is up: `ssh`, `agent` (QEMU's), or what its serial port reports", "")


@dataclass(frozen=True, kw_only=True)
class NodeCrashed(StepEvent):
    """A node's kernel gave up: on Windows a bugcheck, a blue screen. The machine stays as it is."""

    text: str = _field("the message", "")
    code: str = _field("the bugcheck's code, such as `0x0000007B`; empty if the machine did not report it", "")
    name: str = _field("the code's name, such as `INACCESSIBLE_BOOT_DEVICE`; empty if winlab does not know it", "")
    arguments: tuple[str, ...] = _field("the bugcheck's four arguments, hexadecimal", ())


@dataclass(frozen=True, kw_only=True)
class Note(Event):
    """A warning or a hint that belongs to no step."""

    text: str = _field("the message", "")
    repeats: bool = _field(
        "whether every run from this spec on this host reports it: a terminal shows it once a day", False
    )


Listener = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """A listener that does nothing."""


def record(event: Event) -> dict[str, Any]:
    """An event as one JSON object."""
    return {"event": type(event).__name__, **asdict(event)}


MOST = 1e11  # no number of an event is larger: seconds since 1970 until the year 5138


def parse(row: object) -> Event | None:
    """The event that a JSON object describes (the inverse of :func:`record`); its texts are made printable.

    None: it is not one, or one of another version of this description. Unknown fields are ignored.
    """
    if not isinstance(row, dict) or row.get("schema") != SCHEMA:
        return None
    kind = _kinds().get(str(row.get("event")))
    if kind is None:
        return None
    try:
        made = _value(within(row), kind)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    assert isinstance(made, Event)
    return made


@functools.cache
def _kinds() -> dict[str, type[Event]]:
    steps = StepEvent.__subclasses__()
    return {kind.__name__: kind for kind in (*Event.__subclasses__(), *steps) if kind is not StepEvent}


@functools.cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(value: Any, kind: Any) -> Any:
    """A value of JSON as a value of the type *kind*.

    :raises ValueError: it can't be one.
    """
    if get_origin(kind) is tuple and isinstance(value, list):
        return tuple(_value(one, get_args(kind)[0]) for one in value)
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, dict):
        types = _types(kind)
        known = {one.name: _value(value[one.name], types[one.name]) for one in fields(kind) if one.name in value}
        if any(one.name not in known for one in fields(kind) if one.default is one.default_factory is MISSING):
            raise ValueError(f"a field of {kind.__name__} is missing")
        return kind(**known)
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind is int and type(value) is int and abs(value) <= MOST:
        return value
    if kind in (float, float | None) and type(value) in (int, float) and math.isfinite(value) and abs(value) <= MOST:
        return float(value)
    if kind == float | None and value is None:
        return None
    raise ValueError(f"{value!r:.40} is not a value of type {kind}")


class Progress(Protocol):
    """How a long job reports its progress."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """Report what is being done or waited for; *fraction* is 0 to 1 if it is known."""


@runtime_checkable
class Teller(Protocol):
    """A :class:`Progress` that also takes events."""

    def tell(self, event: StepEvent) -> None:
        """Report an event of the step."""


def report(progress: Progress, event: NodeTransport | NodeCrashed) -> None:
    """Report an event of a step; to whom takes only texts, its text."""
    if isinstance(progress, Teller):
        progress.tell(event)
    else:
        progress.say(event.text)


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
        """Report it to the listener.

        :raises Stopped: the work was asked to stop.
        """
        stopping.check()
        self.tell(StepProgress(text=text, fraction=fraction))

    def tell(self, event: StepEvent) -> None:
        """Report an event to the listener."""
        self._tell(replace(event, step=self._name, seconds=time.monotonic() - self._begun))
