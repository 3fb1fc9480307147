"""A command on several nodes at once; one log of a node that is followed. ssh is real, to a server on sockets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paramiko
import plans
import pytest
import sftp_peer
from sftp_peer import Peer
from sites import FakeSite

from winlab import stopping
from winlab.adapters.guests import connect
from winlab.adapters.vm.domains import Machine
from winlab.design.plan import tags
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import NotFoundError, OffError, UsageError
from winlab.operations import follow, group, look, reach


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Peer], list[Machine]]]:
    plan = plans.make(plans.KVM, "3-1-1")
    machines = [
        Machine(f"winlab-lab.{node.name}", "running", tags.of(plan, node), hypervisor=HYPERVISOR) for node in plan.nodes
    ]
    monkeypatch.setattr(look, "find", lambda *_: machines)
    log_in = connect._log_in
    monkeypatch.setattr(connect, "_log_in", lambda _way, *rest: log_in("ssh", *rest))
    with sftp_peer.nodes(monkeypatch, plan, tmp_path) as peers:
        yield peers, machines


def hostname(channel: paramiko.Channel, line: str) -> None:
    channel.sendall(line.encode() + b"\n")
    channel.send_exit_status(3)
    channel.close()


def endless(channel: paramiko.Channel, _line: str) -> None:
    try:
        while True:
            channel.sendall(b"y\n" * 1000)
    except (OSError, EOFError):
        return


def ignore(_node: str, _chunk: bytes) -> None:
    pass


def test_each_node_has_its_own_end(lab: Any) -> None:
    peers, machines = lab
    for peer in peers.values():
        peer.play = hostname
    stopped = Machine("x", "off", machines[1].tag, hypervisor=HYPERVISOR)
    heard: dict[str, bytes] = {}

    def hear(node: str, chunk: bytes) -> None:
        heard[node] = heard.get(node, b"") + chunk

    ended = group.execute([machines[0], stopped, machines[3]], FakeSite(), ["hostname", "-s"], hear, ignore)
    assert {node: one.exit_code for node, one in ended.items()} == {"controller-1": 3, "controller-2": 9, "node-1": 3}
    assert isinstance(ended["controller-2"].error, OffError)
    assert heard["controller-1"] == b"hostname -s\n"
    assert heard["node-1"].endswith(b"& hostname -s\n")


def test_output_that_can_not_be_written_stops_all_of_them(lab: Any) -> None:
    peers, machines = lab
    for peer in peers.values():
        peer.play = endless

    def full(node: str, _chunk: bytes) -> None:
        if node == "node-1":
            raise BrokenPipeError(32, "Broken pipe")

    with pytest.raises(BrokenPipeError):
        group.execute(machines, FakeSite(), ["yes"], full, ignore)


def test_input_is_passed_on_while_the_command_runs(lab: Any) -> None:
    """It need not end before the command begins, or at all."""
    peers, _ = lab
    answered = threading.Event()

    def play(channel: paramiko.Channel, _line: str) -> None:
        channel.sendall(b"got " + channel.recv(100))
        while channel.recv(100):
            pass
        channel.send_exit_status(0)
        channel.close()

    def given() -> Iterator[bytes]:
        yield b"first"
        assert answered.wait(60), "the first piece was not passed on"
        yield b"second"

    def hear(chunk: bytes) -> None:
        assert chunk == b"got first"
        answered.set()

    peers["controller-1"].play = play
    assert reach.execute("lab", "controller-1", FakeSite(), ["cat"], hear, lambda _: None, stdin=given()) == 0


# -- one log


def test_a_unit_of_linux(lab: Any) -> None:
    peers, _ = lab
    peers["controller-1"].play = hostname
    heard = bytearray()
    follow.log("lab", "controller-1", FakeSite(), "kubelet", heard.extend, lines=5, since=600, follow=True)
    assert bytes(heard).split() == [
        *b"sudo journalctl --no-pager --output=short-iso --unit=kubelet --since=-600s --follow".split()
    ]
    with pytest.raises(UsageError, match="not a unit"):
        follow.log("lab", "controller-1", FakeSite(), "--help", heard.extend, lines=5, since=None, follow=False)


def test_a_file_of_windows_is_followed(lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peers, _ = lab
    monkeypatch.setattr(follow, "POLL", 0.05)
    path = peers["node-1"].root / "C:/var/log/kubelet/kubelet.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"1\n2\n3\n")
    heard, stop = bytearray(), threading.Event()

    def hear(chunk: bytes) -> None:
        heard.extend(chunk)
        if bytes(heard) == b"2\n3\n":
            with path.open("ab") as file:
                file.write(b"4\n")
        elif heard.endswith(b"4\n"):
            path.write_bytes(b"5\n")  # begun again
        elif heard.endswith(b"5\n"):
            stop.set()

    with stopping.by(stop), pytest.raises(stopping.Stopped):
        follow.log("lab", "node-1", FakeSite(), "kubelet", hear, lines=2, since=None, follow=True)
    assert bytes(heard) == b"2\n3\n4\n5\n"
    for unit, error in (("C:/nosuch.log", NotFoundError), ("sshd", UsageError)):
        with pytest.raises(error):
            follow.log("lab", "node-1", FakeSite(), unit, hear, lines=2, since=None, follow=False)
    with pytest.raises(UsageError, match="can't be searched by time"):
        follow.log("lab", "node-1", FakeSite(), "kubelet", hear, lines=2, since=60, follow=False)


@pytest.mark.parametrize(("text", "value"), [("30s", 30), ("10m", 600), ("2h", 7200), ("1d", 86400)])
def test_times(text: str, value: int) -> None:
    assert follow.seconds(text) == value


@pytest.mark.parametrize("text", ["", "10", "m", "-1m", "1w", "1m1s"])
def test_what_is_not_a_time(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        follow.seconds(text)
