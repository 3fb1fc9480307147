"""What a measurement is: a generator of readings. What it makes, it removes at its end, also after Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from bench.record import Missing, Result, Series
from bench.stage import Stage
from winlab.version import __version__


class Reading(NamedTuple):
    """One value of a series; *what* is the series' name."""

    what: str
    value: float
    unit: str = "s"


Readings = Iterator[Reading | Missing]
Work = Callable[[Stage, int], Readings]  # with the number of repetitions


@dataclass(frozen=True)
class Measurement:
    """A measurement.

    :param repetitions: how often each value is read.
    :param cold: it needs ``--cold``.
    """

    name: str
    work: Work
    repetitions: int
    cold: bool


MEASUREMENTS: dict[str, Measurement] = {}  # in the order in which they run


def measurement(repetitions: int, *, cold: bool = False) -> Callable[[Work], Work]:
    """Register a function as a measurement, under its own name; parameters as those of :class:`Measurement`."""

    def register(work: Work) -> Work:
        name = work.__name__.replace("_", "-")
        MEASUREMENTS[name] = Measurement(name, work, repetitions, cold)
        return work

    return register


def collect(readings: Iterable[Reading | Missing], say: Callable[[str], None]) -> Result:
    """Run a measurement to its end, and show each reading as it comes."""
    values: dict[tuple[str, str], list[float]] = {}
    missing: list[Missing] = []
    for one in readings:
        if isinstance(one, Missing):
            missing.append(one)
            say(f"  {one.what}: not measured: {one.why}")
        else:
            values.setdefault((one.what, one.unit), []).append(one.value)
            say(f"  {one.what}: {one.value:.3f} {one.unit}")
    series = tuple(Series(what, unit, tuple(found)) for (what, unit), found in values.items())
    return Result(f"{datetime.now(UTC):%Y-%m-%d}", __version__, series, tuple(missing))
