"""Injected faults inside a Linux node: the script that makes them, the clock's services, the file that fills."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from winlab_node import faults
from winlab_node.node import Node, NodeError

LINK = {"mac": "52:54:00:00:00:01", "addresses": ["10.0.0.2", "10.244.1.0/24"], "loss": 20, "delay": 100, "jitter": 20}
SCRIPT, UNIT = "var/lib/winlab/faults.sh", "etc/systemd/system/winlab-faults.service"


class Guest:
    """Its own file tree, and commands that are only recorded."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.active = {"chrony"}

    def __call__(
        self, command: list[str], _text: str = "", heard: Callable[[str], None] | None = None
    ) -> tuple[int, str]:
        del heard
        line = " ".join(command).replace(str(self.root), "")
        self.asked.append(line)
        if command[:2] == ["systemctl", "is-active"]:
            return 3, "".join("active\n" if one in self.active else "inactive\n" for one in command[2:])
        if command[:3] == ["systemctl", "mask", "--now"]:
            self.active -= set(command[3:])
        return 0, ""

    def do(self, **settings: Any) -> bool:
        self.asked = []
        told = faults.faults(Node(self.root, self), settings)
        return bool(told["changed"])

    def script(self) -> str:
        return (self.root / SCRIPT).read_text()


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(tmp_path)


def test_packets_are_lost_and_delayed_now_and_after_a_restart(guest: Guest) -> None:
    assert guest.do(links=[LINK])
    text = guest.script()
    assert "parent 77:2 netem limit 20000 loss 20% delay 100ms 20ms" in text
    assert "flower dst_mac 52:54:00:00:00:01 classid 77:2" in text
    assert "ether saddr 52:54:00:00:00:01 numgen random mod 10000 < 2000 counter drop" in text
    assert "protocol ip prio 102 flower dst_ip 10.244.1.0/24 classid 77:2" in text
    routed = "ether saddr != 52:54:00:00:00:01 ip saddr { 10.0.0.2, 10.244.1.0/24 } numgen"
    assert routed in text  # a packet throws the dice once
    assert "faults.sh" in (guest.root / UNIT).read_text()
    assert guest.asked[-1] == f"sh /{SCRIPT}"
    assert not guest.do(links=[LINK])
    assert guest.asked[-1] == f"sh /{SCRIPT}"  # again: a run that was killed before it did not get there


@pytest.mark.parametrize("loss", [100, 99.999])
def test_a_link_that_loses_all_asks_for_no_number(guest: Guest, loss: float) -> None:
    guest.do(links=[{**LINK, "loss": loss}])
    assert "ether saddr 52:54:00:00:00:01 counter drop" in guest.script()
    assert "numgen" not in guest.script()


def test_a_link_without_loss_drops_nothing(guest: Guest) -> None:
    guest.do(links=[{**LINK, "loss": 0, "jitter": 0}])
    assert "netem limit 20000 delay 100ms\n" in guest.script()
    assert "numgen" not in guest.script()


def test_each_link_has_its_queue(guest: Guest) -> None:
    guest.do(links=[{**LINK, "mac": f"52:54:00:00:00:{number:02x}"} for number in range(15)])
    assert "prio bands 16 " in guest.script()
    assert "parent 77:10 netem" in guest.script()  # tc(8) reads hexadecimal numbers
    with pytest.raises(NodeError, match="at most 15"):
        guest.do(links=[{**LINK, "mac": f"52:54:00:00:00:{number:02x}"} for number in range(16)])


@pytest.mark.parametrize("what", [{"mac": "$(reboot)"}, {"addresses": ["10.0.0.1", "$(reboot)"]}])
def test_malformed_addresses_reach_no_script(guest: Guest, what: dict[str, Any]) -> None:
    with pytest.raises(NodeError, match="is no"):
        guest.do(links=[{**LINK, **what}])
    assert not (guest.root / SCRIPT).exists()


def test_faults_leave_nothing(guest: Guest) -> None:
    guest.do(links=[LINK], skew=7200, free=1 << 60)
    assert guest.do(links=[], skew=None, free=None)
    left = [path.name for path in guest.root.rglob("*") if path.is_file()]
    assert left == []
    assert any(line.startswith("systemctl disable winlab-faults") for line in guest.asked)
    assert not guest.do(links=[], skew=None, free=None)
    assert not any("tc " in line for line in guest.asked)


def test_the_clock_stays_wrong(guest: Guest) -> None:
    guest.do(skew=-600)
    assert "+ -600" in guest.script()
    assert "systemctl mask --now chrony" in guest.asked
    guest.do(skew=600)  # chrony runs no more, and is still to be started in the end
    guest.do()
    assert "systemctl unmask chrony" in guest.asked
    assert "systemctl start chrony" in guest.asked
    (right,) = (line for line in guest.asked if "since_epoch" in line)
    assert "+ 0" in right


class Disk:
    """A disk with some room: what the file takes is missing, and its own tables take a little more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room, self.size, self.tables = room, 0, 0
        played = {
            "fstatvfs": lambda _: types.SimpleNamespace(f_bfree=self.room - self.size, f_frsize=1),
            "fstat": lambda _: types.SimpleNamespace(st_size=self.size),
            "posix_fallocate": self.allocate,
            "ftruncate": self.truncate,
        }
        monkeypatch.setattr(faults, "os", types.SimpleNamespace(**{**vars(os), **played}))

    def allocate(self, _file: int, start: int, length: int) -> None:
        assert start == self.size
        if start + length + self.tables > self.room:
            raise OSError(28, "No space left on device")
        self.size = start + length

    def truncate(self, _file: int, size: int) -> None:
        self.size = size


def test_a_file_takes_the_space_and_adapts_to_others(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 1 << 30)
    node = Node(guest.root, guest)
    faults._fill(node, 50 << 20)
    assert disk.room - disk.size == 50 << 20
    disk.room -= 20 << 20  # another process writes
    faults._fill(node, 50 << 20)
    assert disk.room - disk.size == 50 << 20
    disk.room += 80 << 20  # another process removes
    faults._fill(node, 50 << 20)
    assert disk.room - disk.size == 50 << 20


def test_a_disk_is_filled_as_far_as_the_file_system_allows(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch, 1 << 30)
    disk.tables = 3 << 20
    faults._fill(Node(guest.root, guest), 0)
    assert 0 <= disk.room - disk.size <= 4 << 20
