"""The report of a suite: its results, one line that sums it up, a JSON document, JUnit's XML."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from lxml import etree

from winlab import files
from winlab.checks.model import Outcome, RowResult
from winlab.errors import UsageError

# what XML 1.0 can't hold: https://www.w3.org/TR/xml/#charsets
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Report:
    """All results of a suite (``smoke``, ``readiness``) in one lab; ``begun`` is seconds since 1970."""

    suite: str
    lab: str
    results: tuple[RowResult, ...]
    begun: float
    seconds: float

    @property
    def failed(self) -> tuple[RowResult, ...]:
        """The results that make the suite fail."""
        return tuple(result for result in self.results if result.outcome is Outcome.FAILED)

    @property
    def counts(self) -> dict[Outcome, int]:
        """How many results have each outcome; outcomes without results are left out."""
        numbers = Counter(result.outcome for result in self.results)
        return {outcome: numbers[outcome] for outcome in Outcome if numbers[outcome]}

    @property
    def ordered(self) -> list[RowResult]:
        """The results: what failed first, what passed next."""
        first = (Outcome.FAILED, *(outcome for outcome in Outcome if outcome is not Outcome.FAILED))
        return sorted(self.results, key=lambda result: first.index(result.outcome))

    @property
    def summary(self) -> str:
        """One line that sums it up: ``smoke of lab: 12 passed, 1 failed``."""
        counts = ", ".join(f"{number} {outcome.value}" for outcome, number in self.counts.items())
        return f"{self.suite} of '{self.lab}': {counts or 'nothing was checked'} ({self.seconds:.0f} s)"

    def junit(self) -> bytes:
        """The report as JUnit XML, as CI systems read it.

        Only ``failed`` is a failure; anything else that has not passed is skipped, with the reason as its message.
        Source of the format: Ant's JUnit schema (github.com/windyroad/JUnit-Schema), which is the strictest one in use.
        The empty elements that it requires are therefore written, and no others.
        """
        skipped = sum(r.outcome not in (Outcome.PASSED, Outcome.FAILED) for r in self.results)
        suites = etree.Element("testsuites")
        suite = etree.SubElement(
            suites,
            "testsuite",
            id="0",
            package="winlab",
            name=self.suite,
            hostname=_clean(self.lab),
            timestamp=_time(self),
            tests=str(len(self.results)),
            failures=str(len(self.failed)),
            errors="0",
            skipped=str(skipped),
            time=f"{self.seconds:.3f}",
        )
        etree.SubElement(suite, "properties")
        for result in self.results:
            _case(suite, self, result)
        etree.SubElement(suite, "system-out").text = self.summary
        etree.SubElement(suite, "system-err")
        text: bytes = etree.tostring(suites, xml_declaration=True, encoding="UTF-8", pretty_print=True)
        return text

    def write_junit(self, path: Path) -> None:
        """Write the report as JUnit XML.

        :raises UsageError: the file can't be written.
        """
        try:
            files.write_named(path, self.junit())
        except OSError as error:
            raise UsageError(f"The results can't be written to '{path}'.", why=str(error)) from error


def _case(suite: etree._Element, report: Report, result: RowResult) -> None:
    way = " -> ".join(part for part in (result.source, result.target) if part)
    case = etree.SubElement(
        suite,
        "testcase",
        classname=f"winlab.{report.suite}",
        name=_clean(f"{result.id} {result.title}" + (f": {way}" if way else "")),
        time=f"{result.seconds:.3f}",
    )
    if result.outcome is Outcome.FAILED:
        failure = etree.SubElement(case, "failure", type=result.outcome.value, message=_clean(result.detail))
        failure.text = _clean(result.detail)
    elif result.outcome is not Outcome.PASSED:
        etree.SubElement(case, "skipped", message=_clean(f"{result.outcome.value}: {result.detail}"))


def _clean(text: str) -> str:
    return _NOT_XML.sub("?", text)


def _time(report: Report) -> str:
    return datetime.fromtimestamp(report.begun, UTC).strftime("%Y-%m-%dT%H:%M:%S")
