"""How each system runs winlab's scripts."""

from __future__ import annotations

import pytest

from winlab.adapters.guests import systems
from winlab.design.system import LINUX, SYSTEMS, WINDOWS, System


class Shell:
    """A guest that remembers commands and prints the same for all."""

    def __init__(self, prints: str = "") -> None:
        self.prints = prints
        self.asked: list[tuple[list[str], bytes]] = []

    def __call__(self, command: list[str], stdin: bytes = b"") -> str:
        self.asked.append((command, stdin))
        return self.prints


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_has_its_ways(system: System) -> None:
    assert systems.ways(system).command("PLACE", "logs")[-1].rpartition("\\")[2].removesuffix(".ps1") == "logs"


def test_linux_is_brought_the_program() -> None:
    shell = Shell()
    place = systems.ways(LINUX).place(shell)
    ((command, program),) = shell.asked
    assert command[-1].endswith(f" {place}")
    assert program.startswith(b"PK")


def test_a_line_by_ssh_has_utf_8_and_its_own_exit_code() -> None:
    assert systems.ways(LINUX).by_ssh("a & b") == "a & b"
    assert systems.ways(WINDOWS).by_ssh("a & b") == "chcp 65001 >nul 2>&1 || ver >nul & a & b"


@pytest.mark.parametrize("line", systems.ways(WINDOWS).signs.values())
def test_commands_for_the_agent_need_no_quotation_marks(line: str) -> None:
    assert '"' not in line
    assert systems.ways(LINUX).signs == {}


def test_windows_searches_its_drives() -> None:
    assert systems.ways(WINDOWS).place(Shell("E:\r\nF:\r\n")) == "E:"
    assert systems.ways(WINDOWS).place(Shell()) == ""


@pytest.mark.parametrize("prints", ["E:", ""])
def test_windows_notices_a_cd_when_it_shows_the_file(prints: str) -> None:
    shell = Shell(prints)
    assert systems.ways(WINDOWS).sees(shell, "push/kubelet.exe", there=True) == bool(prints)
    assert systems.ways(WINDOWS).sees(shell, "push/kubelet.exe", there=False) != bool(prints)
    assert "exist %d:\\push\\kubelet.exe echo" in shell.asked[0][0][0]


def test_linux_is_not_asked_for_a_cd() -> None:
    shell = Shell()
    for there in (True, False):
        assert systems.ways(LINUX).sees(shell, "push/kubelet", there=there)
    assert not shell.asked


def test_only_windows_loses_a_script() -> None:
    for code in (-196608, 0xFFFD0000):
        assert systems.ways(WINDOWS).is_missing(code)
        assert not systems.ways(LINUX).is_missing(code)
    assert not systems.ways(WINDOWS).is_missing(1)
