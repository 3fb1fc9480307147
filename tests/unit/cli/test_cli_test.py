"""winlab test on the command line: its output, its files, its exit codes."""

from __future__ import annotations

from pathlib import Path

import checks_fakes
import commands
import pytest
import results
import runs
from checks_fakes import CONTROLLER, LINUX, Cluster, access
from lxml import etree

from winlab.checks import access as ways


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(checks_fakes, "CLOCK", runs.clock(monkeypatch))
    cluster = Cluster(CONTROLLER, LINUX)
    monkeypatch.setattr(ways, "of", lambda name, _site: (list(cluster.tags), access(cluster)))
    return cluster


def invoke(*words: str) -> commands.Ran:
    return commands.ran("test", *words)


def test_the_command_ends_with_0_and_writes_its_files(lab: Cluster, tmp_path: Path) -> None:
    done = invoke("smoke", "--output", "json", "--junit", str(tmp_path / "out.xml"))
    assert done.exit_code == 0
    assert sum(row["outcome"] == "passed" for row in results.items(done.stdout)) > 8
    assert etree.parse(str(tmp_path / "out.xml")).getroot().tag == "testsuites"


def test_a_failure_ends_with_11(lab: Cluster) -> None:
    lab.broken = {("smoke-linux-1", "*")}
    done = invoke("smoke", "--only", "L1,l2")
    assert done.exit_code == 11
    assert "i/o timeout" in done.stdout
    assert "1 passed, 1 failed" in done.stdout
    assert done.stdout.split()[:6] == ["ID", "CHECK", "FROM", "TO", "OUTCOME", "SEEN"]


def test_the_checks_that_only_can_name_are_listed(lab: Cluster) -> None:
    """ux D40. Each is accepted; a wrong one leads to the list."""
    rows = results.items(invoke("list", "-o", "json").stdout)
    for suite in ("readiness", "smoke"):
        names = ",".join(row["name"] for row in rows if row["suite"] == suite)
        assert "There is no check" not in invoke(suite, "--only", names, "--lab", "gone").stderr
    assert all(row["title"] and row["source"] for row in rows)
    assert ["L1", "smoke", "pod", "to", "pod", "smoke-linux-1", "smoke-linux-2"] in [
        line.split() for line in invoke("list").stdout.splitlines()
    ]
    done = invoke("smoke", "--only", "")
    assert done.exit_code == 2
    assert "'winlab test list' says what each checks" in done.stderr


def test_what_failed_comes_first_and_what_tested_nothing_is_counted(lab: Cluster) -> None:
    lab.broken = {("smoke-linux-1", "*")}
    rows = invoke("smoke").stdout.splitlines()
    outcomes = [next((word for word in ("failed", "passed") if f" {word}" in row), "") for row in rows[1:]]
    assert outcomes[0] == "failed"
    assert "failed" not in outcomes[outcomes.index("passed") : -1]
    (folded,) = [row for row in rows if row.startswith("Don't apply")]
    assert folded.endswith("(-o wide shows them).")
    whole = invoke("smoke", "-o", "wide").stdout
    assert whole.count("not-applicable") == int(folded.split(": ")[1].split()[0]) + 1  # and in the sum


def test_readiness_ends_with_11_too(lab: Cluster) -> None:
    assert invoke("readiness", "--timeout", "0", "--only", "R4").exit_code == 0
    assert invoke("readiness", "--timeout", "0", "--only", "R5").exit_code == 11


def test_bad_input_touches_nothing(lab: Cluster, tmp_path: Path) -> None:
    for words in (("smoke", "--only", "99"), ("readiness", "--only", "1"), ("smoke", "--junit", "/no/such/x.xml")):
        assert invoke(*words).exit_code == 2
    assert not lab.calls
