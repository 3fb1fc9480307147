"""A Windows that is reached by WinRM and ssh, each of which may be unresponsive, and by its guest agent."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import answers
import libvirt
import libvirt_qemu
import pytest
import runs

from winlab.adapters.guests import base, connect
from winlab.adapters.vm import agent
from winlab.design.contract import on_both, on_windows
from winlab.design.plan.tags import Tag
from winlab.errors import UnreachableError
from winlab.lab_folder import LabFolder


class Windows:
    """It runs winlab's scripts over either connection, and remembers which.

    ``deaf`` are the ways that don't answer; ``cut`` are scripts in the middle of which WinRM stops responding for good.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: runs.Clock) -> None:
        self.deaf: set[str] = set()
        self.cut: set[str] = set()
        self.ran: list[tuple[str, str]] = []
        self.logins: list[str] = []
        self.shell = b"Windows_NT\r\n"  # the result of %OS% in its shell
        monkeypatch.setattr(connect, "_heard", {})
        monkeypatch.setattr(connect, "_log_in", self.log_in)
        monkeypatch.setattr(connect, "_knock", self.knock)
        for module in (connect, agent):
            monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))

    def log_in(self, way: str, _tag: Tag, _folder: LabFolder, _timeout: float) -> base.Guest:
        self.logins.append(way)
        self.require(way)
        return Login(self, way)

    def knock(self, _tag: Tag) -> None:
        self.logins.append("knock")
        self.require("winrm")

    def require(self, way: str) -> None:
        if way in self.deaf:
            raise UnreachableError(f"'node-1' does not answer {way}.")

    def perform(self, way: str, line: str, stdin: bytes) -> tuple[int, bytes]:
        """The output of a command line, and its exit code."""
        if "payload.json" in line:
            return 0, b"E:\r\n"
        if "%OS%" in line:
            return 0, self.shell
        if ".ps1" not in line:
            return 0, f"{line}: \x1b[31mfine\r\n".encode()
        script = line.rpartition("\\")[2].removesuffix(".ps1")
        json.loads(stdin)
        self.ran.append((way, script))
        if script in self.cut:
            self.cut.remove(script)
            self.deaf.add(way)
            raise UnreachableError("the connection was lost")
        kind = {"status": on_windows.WindowsFacts}.get(script, on_both.Changed)
        if script == "logs":
            return 0, b'{"logs": {"kubelet": "it \\u001b[2J started", "../evil": "x"}}\r\n'
        return 0, json.dumps(answers.FRESH[kind]).encode() + b"\r\n"


class Login:
    """A login over one of the two connections."""

    def __init__(self, windows: Windows, way: str) -> None:
        self._windows = windows
        self._way = way

    def execute(
        self,
        command: Sequence[str],
        stdout: Callable[[bytes], None] = base.discard,
        stderr: Callable[[bytes], None] = base.discard,
        stdin: bytes = b"",
        waiting: Callable[[], None] = base.patient,
    ) -> int:
        del stderr
        self._windows.require(self._way)
        code, out = self._windows.perform(self._way, " ".join(command), stdin)
        stdout(out)
        return code

    def close(self) -> None:
        pass


class Agent:
    """QEMU's guest agent in it, as libvirt passes its answers on. ``says`` replaces answers by others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, windows: Windows) -> None:
        self.windows = windows
        self.says: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []
        self.jobs: dict[int, dict[str, Any]] = {}
        self.is_there = True
        monkeypatch.setattr(agent, "find", lambda *_: object())
        monkeypatch.setattr(libvirt_qemu, "qemuAgentCommand", self.ask)

    def ask(self, _domain: object, text: str, timeout: int, _flags: int) -> str:
        assert 0 < timeout <= 10, "a guest must not hold winlab"
        question = json.loads(text)
        self.asked.append(question)
        if not self.is_there:
            raise Refused("QEMU guest agent is not connected", libvirt.VIR_ERR_AGENT_UNRESPONSIVE)
        what, arguments = question["execute"], question.get("arguments", {})
        if what in self.says:
            one = self.says[what]
            if isinstance(one, Exception):
                raise one
            return one if isinstance(one, str) else json.dumps({"return": one})
        if what == "guest-exec":
            assert arguments["path"] == "cmd.exe"
            assert arguments["arg"][0] == "/c"
            line, stdin = arguments["arg"][1], base64.b64decode(arguments.get("input-data", ""))
            assert '"' not in line, "the agent would escape it, and cmd.exe knows no such escape"
            code, out = self.windows.perform("agent", line, stdin)
            number = len(self.jobs) + 1
            self.jobs[number] = {"exited": True, "exitcode": code, "out-data": base64.b64encode(out).decode()}
            return json.dumps({"return": {"pid": number}})
        if what == "guest-exec-status":
            return json.dumps({"return": self.jobs[arguments["pid"]]})
        return json.dumps({"return": {}})


class Refused(libvirt.libvirtError):  # type: ignore[misc]
    """An error of libvirt's with a code."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self._code = code

    def get_error_code(self) -> int:
        return self._code
