from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree

from winlab.checks.model import Outcome, RowResult, said
from winlab.checks.report import Report
from winlab.errors import ClusterError, UsageError

# Ant's JUnit format, as its schema has it: what must be there, in which order, and nothing else
GRAMMAR = """
<grammar xmlns="http://relaxng.org/ns/structure/1.0" datatypeLibrary="http://www.w3.org/2001/XMLSchema-datatypes">
 <start><element name="testsuites"><zeroOrMore><element name="testsuite">
  <attribute name="id"><data type="int"/></attribute><attribute name="package"><data type="token"/></attribute>
  <attribute name="name"><data type="token"><param name="minLength">1</param></data></attribute>
  <attribute name="hostname"><data type="token"><param name="minLength">1</param></data></attribute>
  <attribute name="timestamp"><data type="dateTime">
   <param name="pattern">[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}</param></data></attribute>
  <attribute name="tests"><data type="int"/></attribute><attribute name="failures"><data type="int"/></attribute>
  <attribute name="errors"><data type="int"/></attribute><attribute name="skipped"><data type="int"/></attribute>
  <attribute name="time"><data type="decimal"/></attribute>
  <element name="properties"><empty/></element>
  <zeroOrMore><element name="testcase">
   <attribute name="name"><data type="token"/></attribute><attribute name="classname"><data type="token"/></attribute>
   <attribute name="time"><data type="decimal"/></attribute>
   <optional><choice>
    <element name="skipped"><attribute name="message"/></element>
    <element name="failure"><attribute name="message"/><attribute name="type"/><text/></element>
   </choice></optional>
  </element></zeroOrMore>
  <element name="system-out"><text/></element><element name="system-err"><text/></element>
 </element></zeroOrMore></element></start>
</grammar>
"""


def every_outcome(detail: str = "seen") -> Report:
    results = tuple(RowResult(str(n), "title", "a", "b" if n else "", o, detail, 1.25) for n, o in enumerate(Outcome))
    return Report("smoke", "lab", results, 1_795_000_000.5, 12.3456)


def test_junit_files_follow_the_grammar_of_ci_systems() -> None:
    document = etree.fromstring(every_outcome("bad \x1b[31m bytes \x00 & <tags>").junit())
    etree.RelaxNG(etree.fromstring(GRAMMAR)).assertValid(document)
    suite = document[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("6", "1", "4")
    assert [case[0].tag if len(case) else None for case in suite.findall("testcase")] == [
        None, "failure", "skipped", "skipped", "skipped", "skipped",
    ]  # fmt: skip
    assert suite.find("testcase/failure").get("message") == "bad ?[31m bytes ? & <tags>"
    assert suite.findall("testcase")[4][0].get("message").startswith("not-in-a-rehearsal: ")


def test_the_grammar_of_the_test_can_refuse() -> None:
    document = etree.fromstring(every_outcome().junit())
    document[0].append(etree.Element("testcase"))
    assert not etree.RelaxNG(etree.fromstring(GRAMMAR)).validate(document)


def test_summary() -> None:
    report = every_outcome()
    assert report.counts[Outcome.RECORDED] == 1
    assert "1 passed, 1 failed" in report.summary


def test_a_file_that_can_t_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can't be written"):
        every_outcome().write_junit(tmp_path)


def test_results_are_not_written_through_a_link(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "out.xml"
    victim.write_text("theirs")
    path.symlink_to(victim)
    every_outcome().write_junit(path)
    assert path.read_bytes().startswith(b"<?xml")
    assert victim.read_text() == "theirs"


def test_only_a_failure_fails() -> None:
    harmless = [o for o in Outcome if o is not Outcome.FAILED]
    assert not Report("s", "lab", tuple(RowResult("1", "", "", "", o) for o in harmless), 0, 0).failed
    assert every_outcome().failed


def test_messages_are_one_short_line() -> None:
    assert said(ClusterError("what", why="two\n  lines")) == "two lines"
    assert len(said(Exception("x" * 5000))) == 400
