"""What runs of ``make bench`` found: values, medians and ratios, in a file of JSON. Pure but for reading that file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs/benchmarks.json"


class Missing(NamedTuple):
    """A series that could not be measured, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class Series:
    """All values of one thing."""

    what: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The value in the middle."""
        return statistics.median(self.values)


@dataclass(frozen=True)
class Result:
    """What one measurement found, on one day with one version of winlab."""

    date: str
    version: str
    series: tuple[Series, ...]
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True)
class Record:
    """The results of the measurements, by their names, and the host that they ran on."""

    host: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, Result] = field(default_factory=dict)

    def on(self, host: Mapping[str, str]) -> Record:
        """The record for a host: without the results of another one."""
        return self if dict(self.host) == dict(host) else Record(host)

    def having(self, name: str, result: Result) -> Record:
        """The record with the result of a measurement, in place of an earlier one."""
        return replace(self, results={**self.results, name: result})

    def series(self, what: str) -> Series | None:
        """The series of that name."""
        return next((one for one in self._all() if one.what == what), None)

    def ratio(self, what: str, over: str) -> float | None:
        """The median of a series divided by that of another; None unless both were measured."""
        one, other = self.series(what), self.series(over)
        return None if one is None or other is None or not other.median else one.median / other.median

    def _all(self) -> Iterator[Series]:
        for result in self.results.values():
            yield from result.series


def read(path: Path = FILE) -> Record:
    """Read a record; it is empty if there is no file."""
    if not path.exists():
        return Record()
    found = json.loads(path.read_text(encoding="utf-8"))
    results = {
        name: Result(
            row["date"],
            row["version"],
            tuple(Series(one["what"], one["unit"], tuple(one["values"])) for one in row["series"]),
            tuple(Missing(*one) for one in row["missing"]),
        )
        for name, row in found["results"].items()
    }
    return Record(found["host"], results)


def write(record: Record, path: Path = FILE) -> None:
    """Write a record, with values of three decimals."""
    whole = asdict(record)
    for result in whole["results"].values():
        for one in result["series"]:
            one["values"] = [round(value, 3) for value in one["values"]]
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
