"""The stand-in's first start: a service that does not start, and a bug, are seen on the serial port."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from winlab_standin.guest import accounts, bootstrap, installed, report, services
from winlab_standin.guest import world as worlds
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import DELAYED, WINRM, Registry
from winlab_standin.guest.releases import NO_OPENSSH, PORT_TAKEN, RELEASES, Windows
from winlab_standin.guest.services import Services
from winlab_standin.guest.shell import Shell
from winlab_standin.guest.world import Adapter, World


class Quiet(World):
    def serial(self, text: str) -> None:
        PORT.append(text)

    def adapters(self) -> list[Adapter]:
        return ADAPTERS


PORT: list[str] = []
ADAPTERS = [Adapter("eth0", "52:54:00:00:00:01", 1500, ())]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the processes of the stand-in leave notes for each other."""
    PORT.clear()
    folder = tmp_path / "run"
    folder.mkdir()
    for module in (bootstrap, services):
        monkeypatch.setattr(module, "STATE", folder)
    monkeypatch.setattr(worlds, "LOGGED_ON", folder / "logged-on")
    monkeypatch.setattr(services, "PID", folder / "sshd.pid")
    monkeypatch.setattr(services, "SSHD_LOG", folder / "sshd.log")
    monkeypatch.setattr(services, "C", tmp_path / "c")
    monkeypatch.setattr(services, "write_port", PORT.append)
    monkeypatch.setattr(report, "write_port", PORT.append)
    return folder


@pytest.fixture
def world(tmp_path: Path) -> Quiet:
    (tmp_path / "c/Windows/System32/config").mkdir(parents=True)
    (tmp_path / "c/Windows/Panther").mkdir()
    return Quiet(Drives({"C": tmp_path / "c"}), Registry(tmp_path / "registry.json"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The answer ISO's folder."""
    folder = tmp_path / "e/winlab"
    folder.mkdir(parents=True)
    for name in ("bootstrap.ps1", "winrm.pfx", *bootstrap.SSH_FILES):
        (folder / name).write_bytes(b"x")
    (folder / "node.json").write_text(json.dumps({"node": "W1", "mtu": 1400, "pfx_password": "p"}))
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"bootstrap_sha256": hashlib.sha256(b"x").hexdigest()}))
    monkeypatch.setattr(bootstrap, "KNOWN", known)
    monkeypatch.setattr(bootstrap, "pem", lambda *_: (b"chain", b"key"))
    monkeypatch.setattr(bootstrap, "run", lambda *_: None)
    return folder


def serve(one: Services, stop: threading.Event) -> None:
    while not stop.wait(0.01):
        one.serve_requests()


def play(one: Services, folder: Path, world: World) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=serve, args=(one, stop))
    thread.start()
    try:
        bootstrap.play(folder, world, world.drives.letters["C"])
    finally:
        stop.set()
        thread.join()


def made(world: World, windows: Windows | None = None) -> Services:
    return Services(lambda: Shell(world, COMMANDS), world.drives.letters["C"] / bootstrap.CONFIG, windows)


def test_ready_when_the_services_run(state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(world)
    (state / "failed.winrm").write_text("from before")
    answers = [world.drives.letters["C"] / "Windows/Panther" / name for name in bootstrap.ANSWERS]
    for path in answers:
        path.touch()
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", lambda: None)
    world.log_on()
    play(one, folder, world)
    assert PORT[-1] == "winlab: phase=ready\r\n"
    assert not world.logged_on()
    assert not any(path.exists() for path in answers)
    assert world.registry.get(WINRM, DELAYED) == "0x0"  # from now on it comes with Windows


def test_in_another_language_the_account_is_renamed(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients from outside know only its English name."""
    world.windows = Windows(language="fr-FR")
    config = world.drives.letters["C"] / bootstrap.CONFIG
    monkeypatch.setattr(accounts, "SHADOW", state / "shadow")
    monkeypatch.setattr(accounts, "NTLM", state / "ntlm")
    (state / "shadow").touch()
    (config / accounts.SAM).write_text(json.dumps({"crypt": "C", "nt": "F"}))
    one = made(world)
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", lambda: None)
    play(one, folder, world)
    assert "\nAdministrator:500:" in f"\n{(state / 'ntlm').read_text()}"
    assert accounts.name(config, world.windows) == "Administrator"


def test_without_ssh_it_is_ready_and_warns(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no such\nluck")

    one = made(world)
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", fail)
    play(one, folder, world)
    (warning,) = (line for line in PORT if "warning=" in line)
    assert warning.startswith("winlab: warning=ssh: Start-Service : ")
    assert "'sshd' cannot be started: no such luck" in warning
    assert PORT[-1] == "winlab: phase=ready\r\n"


def test_a_windows_without_openssh_that_reaches_no_update_is_ready_and_warns(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.windows = Windows(traps=(NO_OPENSSH,))
    one = made(world)
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", lambda: pytest.fail("there is none"))
    play(one, folder, world)
    (warning,) = (line for line in PORT if "warning=" in line)
    assert warning.startswith("winlab: warning=ssh: OpenSSH is not available (workers.openssh=FILE brings it): ")
    assert PORT[-1] == "winlab: phase=ready\r\n"
    assert not (world.drives.letters["C"] / "ProgramData/ssh").exists()
    PORT.clear()
    (folder / "OpenSSH-Win64.zip").touch()
    monkeypatch.setattr(one, "start_sshd", lambda: None)
    play(one, folder, world)
    assert not [line for line in PORT if "warning=" in line]


def test_a_serial_port_that_another_program_has_at_the_end(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """winlab gets no report of its readiness, and asks."""
    world.windows = Windows(traps=(PORT_TAKEN,))
    world.log_on()
    one = made(world)
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", lambda: None)
    play(one, folder, world)
    assert PORT[-1] == "winlab: phase=ssh\r\n"
    assert (world.drives.letters["C"] / "winlab/ready.txt").read_text().strip() == "W1"
    assert not world.port_is_taken(), "who had it was logged off"


def test_not_ready_when_winrm_does_not_start(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise OSError("no such\nluck")

    one = made(world)
    monkeypatch.setattr(one, "start_winrm", fail)
    with pytest.raises(bootstrap.RefusedError):
        play(one, folder, world)
    assert PORT[-2].startswith("winlab: error=bootstrap: Start-Service : ")
    assert "'WinRM' cannot be started: no such luck" in PORT[-2]
    assert "winlab: phase=ready\r\n" not in PORT
    assert not (world.drives.letters["C"] / "winlab/ready.txt").exists()
    assert world.registry.get(r"HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion\Winlogon", "AutoAdminLogon") == "0"


def test_another_error_of_the_script_is_reported(state: Path, world: Quiet, folder: Path) -> None:
    (folder / "node.json").write_text(json.dumps({"mtu": None}))
    with pytest.raises(bootstrap.RefusedError):
        bootstrap.play(folder, world, world.drives.letters["C"])
    assert PORT[-2].startswith("winlab: error=bootstrap: ")


def test_additions_of_the_user(state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files come to their places; scripts of the user can't be simulated."""
    one = made(world)
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    monkeypatch.setattr(one, "start_sshd", lambda: None)
    (folder / "files/users/Public").mkdir(parents=True)
    (folder / "files/users/Public/a.txt").write_text("a")
    c = world.drives.letters["C"]
    (c / "Users").mkdir(exist_ok=True)
    play(one, folder, world)
    assert (c / "Users/Public/a.txt").read_text() == "a"
    assert PORT[-1] == "winlab: phase=ready\r\n"
    (folder / "scripts").mkdir()
    (folder / "scripts/01-own.ps1").write_text("Get-Date")
    with pytest.raises(bootstrap.RefusedError, match=r"01-own\.ps1"):
        play(one, folder, world)
    assert PORT[-2].startswith("winlab: error=bootstrap: the stand-in runs no PowerShell")


def test_without_a_driver_for_the_adapter_nothing_is_ready(
    state: Path, world: Quiet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world, "adapters", list)
    with pytest.raises(bootstrap.RefusedError, match="its driver is missing"):
        bootstrap.play(folder, world, world.drives.letters["C"])


def sshd(
    state: Path, world: World, monkeypatch: pytest.MonkeyPatch, listens: bool, windows: Windows | None = None
) -> Services:
    """Services whose sshd listens, or prints something and exits."""

    def begin(args: list[str], *, log: Path) -> int:
        log.write_text("Could not load host key\nno hostkeys available -- exiting.\n")
        if listens:
            (state / "sshd.pid").write_text("7\n")
        return 7

    ssh = world.drives.letters["C"] / "ProgramData/ssh"
    ssh.mkdir(parents=True, exist_ok=True)
    (ssh / "ssh_host_ed25519_key").write_text("key\n")
    monkeypatch.setattr(services, "start", begin)
    monkeypatch.setattr(services, "gone", lambda _: not listens)
    monkeypatch.setattr(services, "SSHD_CONFIG_FILE", state / "sshd_config")
    return made(world, windows)


def test_sshd_that_listens(state: Path, world: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sshd(state, world, monkeypatch, listens=True)
    one.start_sshd()
    assert one.sshd == 7


@pytest.mark.parametrize(
    ("release", "language", "own"),
    [("2019", "fr-FR", True), ("2022", "fr-FR", True), ("2025", "fr-FR", False), ("2022", "en-US", False)],
)
def test_the_key_is_where_sshd_looks_for_it(
    state: Path,
    world: Quiet,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    language: str,
    own: bool,
) -> None:
    """Before 2025 it does not know the group of administrators by a name that is not English."""
    one = sshd(state, world, monkeypatch, listens=True, windows=Windows(RELEASES[release], language=language))
    monkeypatch.setattr(one, "start_winrm", lambda: None)
    (folder / bootstrap.SSH_FILES[-1]).write_text("a key")
    play(one, folder, world)
    (line,) = (line for line in (state / "sshd_config").read_text().splitlines() if "AuthorizedKeysFile" in line)
    path = line.split()[1]
    assert path.startswith("/c/Users/") is own
    assert (world.drives.letters["C"] / path.removeprefix("/c/")).read_text() == "a key"


def test_sshd_that_ends_is_an_error(state: Path, world: Quiet, monkeypatch: pytest.MonkeyPatch) -> None:
    one = sshd(state, world, monkeypatch, listens=False)
    (state / "sshd.pid").write_text("3\n")  # of one that has been reset
    with pytest.raises(OSError, match=r"sshd has ended: .*no hostkeys available"):
        one.start_sshd()
    one.start_configured()  # at a later start, the others keep running
    assert "service sshd did not start: sshd has ended" in PORT[-1]


class HaltError(Exception):
    """Instead of staying forever."""


def test_a_bug_in_the_first_start_is_seen(
    state: Path, world: Quiet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halt() -> None:
        raise HaltError

    def broken(*_: object) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(installed, "PANTHER", tmp_path)
    monkeypatch.setattr(installed, "halt", halt)
    monkeypatch.setattr(installed.answer, "parse", broken)
    monkeypatch.setattr(report, "SCREEN", tmp_path / "screen")
    (tmp_path / "unattend.xml").touch()
    with pytest.raises(HaltError):
        installed._first_start(installed.State(tmp_path / "state.json"), world)
    said = "".join(PORT)
    assert "setup: bug: Traceback (most recent call last):\r\n" in said
    assert "setup: bug: ZeroDivisionError: broken\r\n" in said


def test_a_reset_after_the_answer_file_has_gone(tmp_path: Path) -> None:
    state, cached = installed.State(tmp_path / "state.json"), tmp_path / "unattend.xml"
    assert not installed.finished(state, cached)
    state.set(phase="oobe")
    assert installed.finished(state, cached)
    cached.touch()
    assert not installed.finished(state, cached)
    state.set(phase="done")
    assert installed.finished(state, cached)


def test_a_request_for_a_restart_is_seen_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first process reads while others write: half a request once ended it, and WinRM with it."""
    from winlab_standin.guest import world

    monkeypatch.setattr(world, "STATE", tmp_path)
    write = Path.write_text

    def watched(path: Path, text: str) -> int:
        assert not (tmp_path / "power").exists()
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", watched)
    world.ask_power("reboot", 1.0)
    assert [path.name for path in tmp_path.iterdir()] == ["power"]
    assert (tmp_path / "power").read_text() == "reboot 1.0\n"
