"""The hosts of a site compared, from what hosts report: differences that the tests' own machine does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import sites

from winlab.errors import HostError
from winlab.host import side_by_side
from winlab.host.check import Status
from winlab.host.side_by_side import Cell, Report, SideBySide
from winlab.operations import hosts_doctor
from winlab.site import Site

SAID = """\
time\t1000.5
kernel\t6.1.0-40-amd64
libvirt\tlibvirtd (libvirt) 9.0.0
QEMU\tQEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)
Open vSwitch\tovs-vswitchd (Open vSwitch) 3.1.0
OVN\tovn-controller 23.03.1
CPU\tSome Processor 3
tunnel\t"203.0.113.1"
"""


def report(name: str = "one", at: float = 1000.0, *changes: tuple[str, str], **more: Any) -> Report:
    """A report of a host that was asked between *at* and a second later."""
    text = SAID
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return replace(Report.parse(name, text, at, at + 1, "kvm"), **more)


def cells(check: str, *reports: Report) -> list[Cell]:
    (row,) = (row for row in SideBySide.of(reports).rows if row.check == check)
    return list(row.cells)


def test_equal_hosts_have_no_fault() -> None:
    made = SideBySide.of([report(), report("two", unreached=())])
    assert made.hosts == ("one", "two")
    assert {cell.state for row in made.rows for cell in row.cells} == {Status.OK}
    texts = {row.check: [cell.text for cell in row.cells] for row in made.rows}
    assert texts["QEMU"] == ["7.2.22", "7.2.22"]
    assert texts["OVN"] == ["23.03.1", "23.03.1"]
    assert texts["tunnels"] == ["not tried", "whole packets pass"]
    assert len(made.records()) == 2 * len(made.rows)


@pytest.mark.parametrize(
    ("at", "text", "state"),
    [
        (1000.0, "right", Status.OK),  # the clocks are equal, as far as can be seen
        (998.0, "right", Status.OK),
        (996.5, "3 s ahead", Status.WARN),
        (1010.5, "10 s behind", Status.WARN),
        (900.0, "100 s ahead", Status.FAIL),
        (1100.0, "100 s behind", Status.FAIL),
    ],
)
def test_a_clock_that_differs(at: float, text: str, state: Status) -> None:
    _, cell = cells("clock", report(), report("two", at))
    assert (cell.text, cell.state) == (text, state)
    assert ("two" in cell.cure) is (state is not Status.OK)


@pytest.mark.parametrize(
    ("program", "old", "new", "state"),
    [
        ("QEMU", "7.2.22", "7.9.0", Status.OK),
        ("QEMU", "7.2.22", "10.0.2", Status.WARN),
        ("libvirt", "9.0.0", "11.3.0", Status.WARN),
        ("OVN", "23.03.1", "23.03.9", Status.OK),
        ("OVN", "23.03.1", "23.09.0", Status.WARN),
        ("Open vSwitch", "3.1.0", "2.17.0", Status.WARN),
    ],
)
def test_a_version_that_differs(program: str, old: str, new: str, state: Status) -> None:
    mine, other = cells(program, report(), report("two", 1000.0, (old, new)))
    assert (mine.state, other.text, other.state) == (Status.OK, new, state)


def test_a_program_that_is_missing() -> None:
    _, other = cells(
        "QEMU", report(), report("two", 1000.0, ("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)", ""))
    )
    assert (other.text, other.state) == ("missing", Status.FAIL)
    assert "on two" in other.cure


def test_an_accelerator_or_a_processor_that_differs() -> None:
    slow, fast = report("slow", accelerator="tcg"), report("fast")
    assert cells("accelerator", fast, slow)[1].state == cells("accelerator", slow, fast)[1].state == Status.WARN
    assert "Let slow use KVM" in cells("accelerator", slow, fast)[1].cure
    other = report("two", 1000.0, ("Some Processor 3", "Another"))
    assert cells("CPU", fast, other)[1] == Cell(
        "Another", Status.WARN, "Restore snapshots on the host that saved them: two differs."
    )
    assert cells("CPU", slow, replace(other, accelerator="tcg"))[1].state is Status.OK


def test_full_packets_that_do_not_pass() -> None:
    _, cell = cells("tunnels", report(), report("two", unreached=("203.0.113.1",)))
    assert (cell.text, cell.state) == ("none to 203.0.113.1", Status.FAIL)
    hidden = report("two", 1000.0, ('"203.0.113.1"', ""))
    assert cells("tunnels", hidden)[0].text == "unknown: run this as root"
    assert " -s 1472 203.0.113.2 " in side_by_side.pings(["203.0.113.2"], 1442)


def test_a_host_that_reports_nothing_or_nonsense() -> None:
    off = Report("two", {}, problem="ssh can't connect to 'two'.")
    made = SideBySide.of([report(), off])
    assert [row.cells[1].text for row in made.rows] == ["no", *["-"] * (len(made.rows) - 1)]
    assert made.rows[0].cells[1].state is Status.FAIL
    odd = Report.parse("odd", "time\tnever\n\x1b[2Jkernel\t\x1b[2J" + "x" * 9999 + "\ntunnel\t$(reboot)", 0.0, 1.0)
    assert odd.problem == "It reports no time."
    assert odd.tunnel == ""
    assert all(len(value) <= side_by_side.LONGEST and "\x1b" not in value for value in odd.values.values())


def test_each_host_is_asked_and_pings_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def answer(host: str, script: str) -> str:
        asked.append((host, script))
        if host == "host3":
            raise HostError("ssh can't connect to 'ann@host3'.", cure="Run 'ssh ann@host3 true'.")
        if script == side_by_side.SCRIPT:
            return SAID.replace("203.0.113.1", "203.0.113.2") if host == "host2" else SAID
        return "203.0.113.1\n" if host == "host2" else ""

    monkeypatch.setattr("winlab.adapters.remote.Remote.call", lambda self, script: answer(self.host, script))
    monkeypatch.setattr(hosts_doctor, "_here", lambda script: answer("here", script))
    records = {"b": sites.registered("host2"), "c": sites.registered("host3")}
    monkeypatch.setattr(Site, "registered", lambda _: records)
    made = hosts_doctor.compare(Site(facts=sites.facts(), libvirt="test:///default"))
    assert made.hosts == ("hypervisor-1", "b", "c")
    texts = {row.check: [cell.text for cell in row.cells] for row in made.rows}
    assert texts["answers"] == ["yes", "yes", "no"]
    assert texts["tunnels"] == ["whole packets pass", "none to 203.0.113.1", "-"]
    assert [host for host, _ in asked].count("host3") == 1
    assert hosts_doctor.compare(Site(facts=sites.facts(southbound=""))) == SideBySide((), ())
