"""A silent script is reported every minute, and eventually given up: with a fake of pywinrm's protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import plans
import pytest
import runs
from winrm.exceptions import WinRMOperationTimeoutError
from winrm.protocol import Protocol as Real

from winlab.adapters.guests import connect, scripts, silence, winrm
from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_both, on_windows
from winlab.design.contract.call import Call
from winlab.design.plan import tags
from winlab.errors import SilentError, UnreachableError
from winlab.lab_folder import LabFolder
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.shell import Shell
from winlab_standin.guest.winrm import Service
from winlab_standin.guest.world import World

Answer = tuple[bytes, bytes, int, bool]
FOUND: Answer = (b"E:\r\n", b"", 0, True)


class Protocol:
    """A guest's WinRM: a script stays silent however often it is polled. ``says`` is what it prints, by seconds."""

    def __init__(self, clock: runs.Clock) -> None:
        self.clock = clock
        self.operation_timeout_sec = 0
        self.says: dict[float, Answer] = {}
        self.modes: list[tuple[str, bool]] = []
        self.asked: list[str] = []
        self.line = ""
        self.begun = 0.0

    def open_shell(self, codepage: int, idle_timeout: str) -> str:
        return "shell"

    def run_command(self, _shell: str, line: str, *, console_mode_stdin: bool) -> str:
        self.modes.append((line.rpartition("\\")[2], console_mode_stdin))
        self.line, self.begun = line, self.clock.now
        return "command"

    def send_command_input(self, _shell: str, _command: str, _block: bytes, *, end: bool) -> None:
        self.asked.append("input and its end" if end else "input")

    def get_command_output_raw(self, _shell: str, _command: str) -> Answer:
        if ".ps1" not in self.line:
            return FOUND
        self.clock.now += winrm.OUTPUT_SECONDS
        due = [second for second in self.says if self.begun + second <= self.clock.now]
        if not due:
            raise WinRMOperationTimeoutError
        return self.says.pop(due[0])

    def cleanup_command(self, _shell: str, _command: str) -> None:
        self.asked.append("terminate" if ".ps1" in self.line else "end")

    def close_shell(self, _shell: str) -> None:
        self.asked.append("close")


@pytest.fixture
def protocol(monkeypatch: pytest.MonkeyPatch) -> Protocol:
    made = Protocol(runs.clock(monkeypatch, silence))
    monkeypatch.setattr(winrm, "Protocol", lambda **_: made)
    monkeypatch.setattr(connect, "_heard", {})
    return made


def node(scale: float = 1.0) -> NodeScripts:
    plan, folder = plans.make(plans.TCG), LabFolder("lab")
    folder.ensure_credentials(plan)
    return NodeScripts(tags.of(plan, plan.node("node-1")), folder, scale)


LONG = "123456789 " * 12


@pytest.mark.parametrize(
    ("call", "scale", "limit"),
    [
        (on_windows.WindowsStatus(), 1.0, 300),
        (on_windows.Sealed(), 1.0, 300),
        (on_both.Logs(), 1.0, 300),
        (on_both.Logs(everything=True), 1.0, 600),
        (on_windows.Probe(text="", block=LONG), 3.0, 450),
        (on_windows.Binaries(), 1.0, 1800),
        (on_windows.Features(features=[], release="2022"), 1.0, 3600),
        (on_both.LoadImages(), 1.0, 7200),
        (on_windows.Updates(), 1.0, 21600),
        (on_windows.Updates(), 3.0, 32400),
    ],
)
def test_a_silent_script_is_ended(protocol: Protocol, call: Call[Any], scale: float, limit: float) -> None:
    heard: list[str] = []
    begun = protocol.clock.now
    with pytest.raises(SilentError) as caught:
        node(scale).run(call, heard.append)
    assert limit < protocol.clock.now - begun <= limit + winrm.OUTPUT_SECONDS
    assert not isinstance(caught.value, UnreachableError), "it would be run again"
    assert caught.value.what.startswith(f"'{call.script}' in 'node-1' has been silent for ")
    assert caught.value.why == "It has printed nothing since it began."
    assert "continues there" in caught.value.cure
    assert heard[0] == f"'{call.script}' in 'node-1' still runs after 60 s; nothing heard for 60 s"
    assert len(heard) == limit // 60
    assert protocol.modes == [(protocol.modes[0][0], True), (f"{call.script}.ps1", False)]
    assert protocol.asked == ["end", "input and its end", "terminate", "close"]


def test_a_script_with_occasional_output_may_take_long(protocol: Protocol) -> None:
    protocol.says = {100.0 * number: (b"importing a.tar\r\n", b"", 0, False) for number in range(1, 9)}
    protocol.says[850.0] = (b"", b"", 0, False)  # an answer with nothing in it is none
    protocol.says[900.0] = (b'{"logs": {}}\r\n', b"", 0, True)
    heard: list[str] = []
    assert node().run(on_both.Logs(), heard.append).logs == {}
    assert heard.count("importing a.tar") == 8
    assert heard[2] == "'logs' in 'node-1' still runs after 162 s; nothing heard for 60 s"


def test_its_last_output_is_reported(protocol: Protocol) -> None:
    protocol.says = {40.0: (b"winlab: begun\r\n", b"", 0, False)}
    with pytest.raises(SilentError) as caught:
        node().run(on_windows.WindowsStatus())
    assert caught.value.why == "It has run for 345 s, and its last words were 303 s ago."


def test_an_endless_command_is_ended_too(protocol: Protocol) -> None:
    with pytest.raises(SilentError, match="A command in 'node-1'") as caught:
        node().execute(["E:\\hangs.ps1"])
    assert caught.value.evidence == "the command: E:\\hangs.ps1"
    assert protocol.asked == ["terminate", "close"]


class Named(World):
    def name(self) -> str:
        return "W1"


@pytest.mark.parametrize("forced", [True, False])
def test_a_service_whose_console_has_no_end_of_input(
    forced: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pywinrm itself, against the stand-in's service. Forced: the mode in which the input does not end."""
    drive = tmp_path / "c"
    (drive / "Users/Administrator").mkdir(parents=True)
    world = Named(Drives({"C": drive}), Registry(tmp_path / "registry.json"))
    service = Service(lambda: Shell(world, COMMANDS))

    def made(**options: Any) -> Real:
        client = Real("https://w1:5986/wsman", transport="ntlm", username="a", password="b", operation_timeout_sec=1)
        run: Callable[..., str] = client.run_command
        client.run_command = lambda shell, line, *, console_mode_stdin: run(
            shell, line, console_mode_stdin=forced or console_mode_stdin
        )

        def send(message: str | bytes) -> bytes:
            status, body = service.handle(message.encode() if isinstance(message, str) else message)
            if status != 200:
                raise winrm.WinRMTransportError("http", status, body.decode())
            return body

        client.transport.send_message = send
        return client

    monkeypatch.setattr(winrm, "Protocol", made)
    monkeypatch.setattr(winrm, "OUTPUT_SECONDS", 0.2)
    monkeypatch.setattr(connect, "_heard", {})
    there = node()
    monkeypatch.setattr(scripts.facts, "silence", lambda *_: 0.5)
    if forced:
        with pytest.raises(SilentError):
            there.execute(["findstr x"], b"axb\r\n")
        assert not service.sessions
    else:
        assert there.execute(["findstr x"], b"axb\r\n") == "axb"
