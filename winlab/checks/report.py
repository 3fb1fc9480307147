"""How a report is shown: rows for a table, a JSON document, JUnit's XML."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from lxml import etree

from winlab.checks.model import Outcome, Report, RowResult

COLUMNS = ["ID", "CHECK", "FROM", "TO", "OUTCOME", "SEEN"]
# what XML 1.0 can't hold: https://www.w3.org/TR/xml/#charsets
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def rows(report: Report) -> list[list[str]]:
    """The results as rows of a table."""
    return [[r.id, r.title, r.source, r.target, r.outcome.value, r.detail] for r in report.results]


def summary(report: Report) -> str:
    """One line that sums it up: ``smoke of lab: 12 passed, 1 failed``."""
    counts = ", ".join(f"{number} {outcome.value}" for outcome, number in report.counts.items())
    return f"{report.suite} of '{report.lab}': {counts or 'nothing was checked'} ({report.seconds:.0f} s)"


def document(report: Report) -> dict[str, Any]:
    """The report as it is printed with ``--output json``."""
    return {
        "suite": report.suite,
        "lab": report.lab,
        "begun": _time(report) + "Z",
        "seconds": round(report.seconds, 1),
        "failed": bool(report.failed),
        "counts": {outcome.value: number for outcome, number in report.counts.items()},
        "results": [
            {
                "id": r.id,
                "title": r.title,
                "from": r.source,
                "to": r.target,
                "outcome": r.outcome.value,
                "detail": r.detail,
                "seconds": round(r.seconds, 1),
            }
            for r in report.results
        ],
    }


def junit(report: Report) -> bytes:
    """The report as JUnit XML, as CI systems read it.

    Only ``failed`` is a failure; anything else that has not passed is skipped, with the reason as its message.
    Source of the format: Ant's JUnit schema (github.com/windyroad/JUnit-Schema), which is the strictest one in use.
    That is why the empty elements that it requires are written, and no others.
    """
    skipped = sum(r.outcome not in (Outcome.PASSED, Outcome.FAILED) for r in report.results)
    suites = etree.Element("testsuites")
    suite = etree.SubElement(
        suites,
        "testsuite",
        id="0",
        package="winlab",
        name=report.suite,
        hostname=_clean(report.lab),
        timestamp=_time(report),
        tests=str(len(report.results)),
        failures=str(len(report.failed)),
        errors="0",
        skipped=str(skipped),
        time=f"{report.seconds:.3f}",
    )
    etree.SubElement(suite, "properties")
    for result in report.results:
        _case(suite, report, result)
    etree.SubElement(suite, "system-out").text = summary(report)
    etree.SubElement(suite, "system-err")
    text: bytes = etree.tostring(suites, xml_declaration=True, encoding="UTF-8", pretty_print=True)
    return text


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
