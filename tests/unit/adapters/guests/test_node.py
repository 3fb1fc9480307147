"""Scripts in nodes: what goes in, what comes out, what is said when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from winlab.adapters.guests import base
from winlab.adapters.guests import scripts as nodes
from winlab.adapters.guests.scripts import Node
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabState


def tag(system: str) -> Tag:
    return Tag(
        lab="lab", node="node-1", role="worker", os=system, image="x", user="u",
        address="10.77.0.101", floating="172.31.241.1", plan="p",
    )  # fmt: skip


class Guest:
    """Answers commands by what they contain; the first that fits."""

    def __init__(self, answers: dict[str, tuple[int, bytes, bytes]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bytes]] = []
        self.closed = False
        self.lost = False

    def execute(
        self,
        command: Sequence[str],
        stdout: Callable[[bytes], None] = base.discard,
        stderr: Callable[[bytes], None] = base.discard,
        stdin: bytes = b"",
    ) -> int:
        line = " ".join(command)
        self.asked.append((line, stdin))
        if self.lost:
            raise UnreachableError("gone")
        for part, (code, out, err) in self.answers.items():
            if part in line:
                for at in range(0, len(out), 7):  # in pieces, as a connection brings them
                    stdout(out[at : at + 7])
                stderr(err)
                return code
        return 0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, Guest], Node]:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))

    def make(system: str, guest: Guest) -> Node:
        monkeypatch.setattr(base, "connect", lambda _tag, _state: guest)
        return Node(tag(system), LabState("lab"))

    return make


def test_settings_go_in_by_stdin_and_the_last_line_is_the_result(login: Callable[[str, Guest], Node]) -> None:
    guest = Guest({"prepare": (0, b'copying kubelet\nstarting containerd\n{"changed": true}\n', b"")})
    heard: list[str] = []
    secret = "abcdef.0123456789abcdef"
    assert login("linux", guest).run("prepare", {"token": secret}, heard.append) == {"changed": True}
    assert heard == ["copying kubelet", "starting containerd"]
    line, stdin = guest.asked[-1]
    assert line == "sudo python3 /run/winlab/node.py prepare"
    assert json.loads(stdin) == {"token": secret}
    assert not any(secret in asked for asked, _ in guest.asked)


def test_the_script_is_brought_once(login: Callable[[str, Guest], Node]) -> None:
    guest = Guest({"status": (0, b"{}\n", b"")})
    node = login("linux", guest)
    node.run("status")
    node.run("status")
    assert sum("cat >" in line for line, _ in guest.asked) == 1


def test_windows_scripts_run_from_the_drive_that_has_them(login: Callable[[str, Guest], Node]) -> None:
    guest = Guest({"payload.json": (0, b"E:\r\n", b""), "status.ps1": (0, b'{"build": "20348.2762"}\r\n', b"")})
    assert login("windows", guest).run("status") == {"build": "20348.2762"}
    assert guest.asked[-1][0] == (
        "powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File E:\\scripts\\status.ps1"
    )


def test_no_drive_with_the_cd(login: Callable[[str, Guest], Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes.time, "sleep", lambda _seconds: None)
    with pytest.raises(GuestError, match="does not see winlab's payload CD"):
        login("windows", Guest({})).run("status")


@pytest.mark.parametrize(
    ("code", "out", "err", "says"),
    [
        (1, b"copying\n", b"No drive has winlab's CD.\n", "No drive has winlab's CD."),
        (1, b"only this\n", b"", "only this"),
        (7, b"", b"", "ended with exit code 7"),
    ],
)
def test_failures_are_repeated(
    login: Callable[[str, Guest], Node], code: int, out: bytes, err: bytes, says: str
) -> None:
    with pytest.raises(GuestError) as caught:
        login("linux", Guest({"prepare": (code, out, err)})).run("prepare")
    assert says in str(caught.value)


@pytest.mark.parametrize("out", [b"", b"no json\n", b"[1]\n"])
def test_no_result_is_a_failure(login: Callable[[str, Guest], Node], out: bytes) -> None:
    with pytest.raises(GuestError, match="result"):
        login("linux", Guest({"status": (0, out, b"")})).run("status")


def test_a_lost_connection_is_let_go(login: Callable[[str, Guest], Node]) -> None:
    guest = Guest({"status": (0, b"{}\n", b"")})
    node = login("linux", guest)
    node.run("status")
    guest.lost = True
    with pytest.raises(UnreachableError):
        node.run("status")
    assert guest.closed


def test_a_line_is_heard_at_once(login: Callable[[str, Guest], Node]) -> None:
    """What a script says last before it hangs is what people have to see."""
    heard: list[str] = []

    class Hanging(Guest):
        def execute(self, command: Sequence[str], stdout: Any = None, stderr: Any = None, stdin: bytes = b"") -> int:
            if "prepare" in " ".join(command):
                stdout(b"copying kubelet\n")
                assert heard == ["copying kubelet"]
                stdout(b'{"changed": false}\n')
            return 0

    assert login("linux", Hanging({})).run("prepare", None, heard.append) == {"changed": False}
    assert heard == ["copying kubelet"]


def test_a_cd_that_vanishes_for_a_moment_is_looked_for_again(
    login: Callable[[str, Guest], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just after it was put in; and it may come back under another letter."""
    monkeypatch.setattr(nodes, "PAUSE", 0)
    guest = Guest(
        {
            "for %d": (0, b"E:", b""),
            "-File E:": (-196608, b"", b"The argument to the -File parameter does not exist."),
            "-File F:": (0, b'{"ok": 1}', b""),
        }
    )
    node = login("windows", guest)
    tries: list[str] = []

    def moved(command: Sequence[str], *streams: Any, **others: Any) -> int:
        if "-File" in " ".join(command):
            tries.append(" ".join(command))
            if len(tries) == 2:
                guest.answers["for %d"] = (0, b"F:", b"")
        return Guest.execute(guest, command, *streams, **others)

    monkeypatch.setattr(guest, "execute", moved)
    assert node.run("status") == {"ok": 1}
    assert len(tries) == 3


def test_a_cd_that_does_not_come_back_is_told(
    login: Callable[[str, Guest], Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "PAUSE", 0)
    guest = Guest({"for %d": (0, b"E:", b""), "-File": (0xFFFD0000, b"", b"does not exist.")})
    with pytest.raises(GuestError, match="'status' failed") as caught:
        login("windows", guest).run("status")
    assert "does not exist" in caught.value.why
