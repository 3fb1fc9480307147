"""The ways into the stand-in: UTF-8 over ssh, a WinRM that was stopped, cmd.exe as the guest agent starts it."""

from __future__ import annotations

import io
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from winlab.adapters.guests.windows import WindowsWays
from winlab_standin.guest import login, services, waycommands
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.services import Services
from winlab_standin.guest.shell import Shell, Streams
from winlab_standin.guest.world import World


class Small(World):
    running = True

    def __init__(self) -> None:
        super().__init__(Drives({}), Registry(Path("/nonexistent")))

    def variables(self) -> dict[str, str]:
        return {}

    def services(self) -> dict[str, bool]:
        return {"WinRM": self.running, "sshd": True}

    def settle(self) -> None:
        pass


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (services, waycommands):
        monkeypatch.setattr(module, "STATE", tmp_path)
    return tmp_path


def run(line: str, world: World | None = None) -> tuple[int, str, str]:
    out: list[str] = []
    err: list[str] = []
    shell = Shell(world or Small(), COMMANDS)
    return shell.run(line, Streams(out.append, err.append)), "".join(out), "".join(err)


def test_a_line_by_ssh_is_the_line_itself() -> None:
    by_ssh = WindowsWays().by_ssh
    assert run(by_ssh("echo Grüße")) == (0, "Grüße\r\n", "")
    assert run(by_ssh("exit 7"))[0] == 7
    assert run(by_ssh("nonsense"))[0] == 1
    assert run("chcp") == (0, "Active code page: 65001\r\n", "")
    assert run("chcp 437")[0] == 1


def test_winrm_is_stopped_until_it_is_started(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut: list[str] = []
    served = Services(lambda: Shell(Small(), COMMANDS), state)
    served.listener = SimpleNamespace(cut=lambda: cut.append("cut"))  # type: ignore[assignment]
    monkeypatch.setattr(served, "start_winrm", lambda: cut.append("start"))
    assert run("net stop winrm")[0] == 0
    served.drop_if_asked()
    served.drop_if_asked()
    assert cut == ["cut"]
    world = Small()
    world.running = False
    assert run("net stop winrm", world)[0] == 2

    def serve() -> None:
        while not (state / "reload.winrm").exists():
            time.sleep(0.02)
        served.serve_requests()

    server = threading.Thread(target=serve)
    server.start()
    assert run("net start winrm", world)[0] == 0
    server.join()
    assert cut == ["cut", "start"]


def test_net_supports_its_former_commands() -> None:
    code, out, _ = run("net start")
    assert code == 0
    assert "WinRM" in out
    assert run("net start winrm")[0] == 2  # it runs


def test_the_guest_agent_s_line_is_run(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """guest-exec starts cmd.exe with the whole line as one argument, and its input."""
    monkeypatch.setattr(World, "real", lambda: Small())
    monkeypatch.setattr("sys.stdin", io.StringIO("{}"))
    assert login.main(["/usr/bin/cmd.exe", "/c", "echo from the agent & exit 3"]) == 3
    assert capsysbinary.readouterr().out == b"from the agent \r\n"
