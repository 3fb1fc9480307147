"""beacon.ps1: the health of Windows, on the serial port."""

from __future__ import annotations

import re
from typing import Any

import pytest
from powershell.conftest import SCRIPTS
from powershell.doubles.machine import Machine
from powershell.stages import change, featured, service


def beacon(node: Machine, **arguments: int) -> list[str]:
    Machine.ran.add("beacon")
    told = node.ask({"script": str(SCRIPTS / "beacon.ps1"), "arguments": arguments})
    assert (told.code, told.err) == (0, [])
    path = node.folder / "com1.txt"
    return path.read_text().splitlines() if path.exists() else []


def test_the_beacon_s_lines(node: Machine) -> None:
    featured(node)
    service(node, "kubelet", status="Stopped")
    state = node.state()
    state["adapters"][0]["addresses"] += ["127.0.0.1", "10.244.2.2", "fe80::1"]
    state["networks"] = [{"Name": "nat"}, {"Name": "cbr0"}]
    node.state(state)
    lines = beacon(node, Lines=2, Pause=1)
    assert len(lines) == 2
    wanted = (
        r"winlab: beacon {} addresses=10\.77\.0\.12,10\.244\.2\.2 gateway=10\.77\.0\.1 WinRM=Running sshd=Running "
        r"hns=Running kubelet=Stopped networks=nat,cbr0 free=(\d+)MB boot=17 "
        r"event=7000 2026-11-21T10:00:30Z Service Control Manager: The hns service failed to start\."
    )
    for number, line in enumerate(lines, 1):
        found = re.fullmatch(wanted.format(number), line)
        assert found is not None, line
        assert int(found[1]) < 100_000_000


def test_a_beacon_before_there_are_networks_and_addresses(node: Machine) -> None:
    change(node, adapters=[{**node.state()["adapters"][0], "addresses": [], "gateway": ""}])
    (line,) = beacon(node, Lines=1)
    assert line.startswith(
        "winlab: beacon 1 addresses= gateway= WinRM=Running sshd=Running hns=Stopped networks= free="
    )


def error(level: int, time: str, message: str | None, log: str = "System") -> dict[str, Any]:
    return {"log": log, "id": 41, "level": level, "provider": "Kernel-Power", "time": time, "message": message}


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([], ""),
        ([error(3, "2026-11-21T10:01:00Z", "a warning"), error(1, "2026-11-21T10:01:00Z", "other", "Application")], ""),
        (
            [error(2, "2026-11-21T10:01:00Z", "old"), error(1, "2026-11-21T10:02:00Z", "It\r\n  restarted\tanew.\r\n")],
            " event=41 2026-11-21T10:02:00Z Kernel-Power: It restarted anew.",
        ),
        ([error(2, "2026-11-21T10:01:00Z", None)], " event=41 2026-11-21T10:01:00Z Kernel-Power:"),
        ([error(2, "2026-11-21T10:01:00Z", "x" * 5000)], f" event=41 2026-11-21T10:01:00Z Kernel-Power: {'x' * 156}"),
    ],
)
def test_the_last_error_of_the_system_is_one_short_line(node: Machine, events: list[dict[str, Any]], says: str) -> None:
    change(node, events=events)
    (line,) = beacon(node, Lines=1)
    assert re.sub(r".*MB boot=17", "", line) == says


def test_a_windows_that_does_not_count_its_starts(node: Machine) -> None:
    path = node.folder / "registry.json"
    path.write_text(path.read_text().replace("PrefetchParameters", "Other"))
    (line,) = beacon(node, Lines=1)
    assert " boot= event=" in line


def test_a_locked_account(node: Machine) -> None:
    """After wrong passwords; then the right one is refused, too."""
    users = node.state()["users"]
    change(node, users=[{**users[0], "Lockout": True}, *users[1:]])
    (line,) = beacon(node, Lines=1)
    assert "MB boot=17 account=locked event=7000" in line
    change(node, users=[users[0], {**users[1], "Lockout": True}])
    assert "locked" not in beacon(node, Lines=1)[-1]


@pytest.mark.parametrize(
    ("start", "states"),
    [
        ("Automatic", ["Stopped", "Stopped", "Running", "Running"]),
        ("Manual", ["Stopped"] * 4),  # sealed, or a clone before its bootstrap
        ("Disabled", ["Stopped"] * 4),
    ],
)
def test_a_winrm_that_did_not_start_with_windows_is_started(node: Machine, start: str, states: list[str]) -> None:
    service(node, "WinRM", status="Stopped", start=start)
    lines = beacon(node, Lines=4, Pause=0)
    assert [re.findall(r" WinRM=(\w+) ", line)[0] for line in lines] == states


def test_the_beacon_reports_for_a_quarter_of_an_hour(node: Machine) -> None:
    assert len(beacon(node)) == 30


@pytest.mark.parametrize(("busy", "there"), [(4, 2), (5, 1)])
def test_a_beacon_that_finds_the_port_busy(node: Machine, busy: int, there: int) -> None:
    (node.folder / "serial-busy.txt").write_text(str(busy))
    assert len(beacon(node, Lines=2, Pause=0)) == there
