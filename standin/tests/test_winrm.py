"""The stand-in's WinRM: real messages of pywinrm, no sockets."""

from __future__ import annotations

import io
import threading
from email.message import Message
from pathlib import Path
from xml.etree import ElementTree

import pytest
from winrm.exceptions import WinRMOperationTimeoutError, WinRMTransportError, WSManFaultError
from winrm.protocol import Protocol

from winlab_standin.guest import accounts, winrmd
from winlab_standin.guest import winrm as standin
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.shell import Shell
from winlab_standin.guest.world import World


class Named(World):
    def name(self) -> str:
        return "W1"

    def resolver(self) -> tuple[list[str], list[str]]:
        return [], []


@pytest.fixture
def service(tmp_path: Path) -> standin.Service:
    drive = tmp_path / "c"
    (drive / "Users/Administrator").mkdir(parents=True)
    world = Named(Drives({"C": drive}), Registry(tmp_path / "registry.json"))
    return standin.Service(lambda: Shell(world, COMMANDS))


@pytest.fixture
def client(service: standin.Service) -> Protocol:
    """pywinrm with its transport replaced by a call."""
    protocol = Protocol("https://w1:5986/wsman", transport="ntlm", username="a", password="b", operation_timeout_sec=1)

    def send(message: str | bytes) -> bytes:
        status, body = service.handle(message.encode() if isinstance(message, str) else message)
        if status != 200:
            raise WinRMTransportError("http", status, body.decode())
        return body

    protocol.transport.send_message = send
    return protocol


def run(client: Protocol, line: str, arguments: tuple[str, ...] = ()) -> tuple[bytes, bytes, int]:
    shell = client.open_shell()
    command = client.run_command(shell, line, arguments)
    result: tuple[bytes, bytes, int] = client.get_command_output(shell, command)
    client.cleanup_command(shell, command)
    client.close_shell(shell, close_session=False)
    return result


def test_streams_and_exit_code(client: Protocol) -> None:
    assert run(client, "echo out& echo err 1>&2& exit 3") == (b"out\r\n", b"err \r\n", 3)
    assert run(client, "hostname") == (b"W1\r\n", b"", 0)
    assert run(client, "cmd", ("/c", "exit", "5")) == (b"", b"", 5)
    assert run(client, "nosuch")[2] == 1


def test_folder_and_variables(client: Protocol) -> None:
    shell = client.open_shell(working_directory="C:\\Users", env_vars={"COLOUR": "blue"})
    command = client.run_command(shell, "cd& echo %colour%")
    assert client.get_command_output(shell, command)[0] == b"C:\\Users\r\nblue\r\n"


def test_input(client: Protocol) -> None:
    shell = client.open_shell()
    command = client.run_command(shell, "findstr x", console_mode_stdin=False)
    client.send_command_input(shell, command, b"axb\r\n")
    client.send_command_input(shell, command, b"c\r\n", end=True)
    assert client.get_command_output(shell, command) == (b"axb\r\n", b"", 0)


def test_the_console_s_input_has_no_end(client: Protocol) -> None:
    shell = client.open_shell()
    command = client.run_command(shell, "findstr x")  # pywinrm's usual mode
    client.send_command_input(shell, command, b"axb\r\n", end=True)
    with pytest.raises(WinRMOperationTimeoutError):
        client.get_command_output_raw(shell, command)


def test_several_commands_in_one_shell(client: Protocol, service: standin.Service) -> None:
    shell = client.open_shell()
    commands = [client.run_command(shell, f"echo {number}") for number in range(4)]
    for number, command in enumerate(commands):
        assert client.get_command_output(shell, command)[0] == f"{number}\r\n".encode()
    client.close_shell(shell, close_session=False)
    assert not service.sessions


def test_operation_timeout_and_terminate(client: Protocol, service: standin.Service) -> None:
    shell = client.open_shell()
    command = client.run_command(shell, "findstr x")  # waits for input
    with pytest.raises(WinRMOperationTimeoutError):
        client.get_command_output_raw(shell, command)
    client.cleanup_command(shell, command)
    with pytest.raises(WSManFaultError):
        client.get_command_output_raw(shell, command)
    assert not next(iter(service.sessions.values())).commands


def test_concurrent_clients(client: Protocol) -> None:
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda n=n: found.append(run(client, f"echo {n}")[0])) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(found) == [f"{number}\r\n".encode() for number in range(8)]


def test_ten_wrong_passwords_lock_the_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For ten minutes, in which the right one is refused, too."""
    monkeypatch.setattr(accounts, "LOCKED", tmp_path / "locked")
    now = [1000.0]
    lockout = accounts.Lockout(lambda: now[0])
    assert not any(lockout.admits(right=False) for _ in range(9))
    now[0] += 601  # the earlier ones no longer count
    assert not lockout.admits(right=False)
    assert lockout.admits(right=True)
    assert not any(lockout.admits(right=False) for _ in range(10))
    assert accounts.is_locked(now[0])
    assert not lockout.admits(right=True)
    now[0] += 600
    assert lockout.admits(right=True)


@pytest.mark.parametrize("right", [True, False])
def test_the_listener_counts_wrong_passwords(
    service: standin.Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, right: bool
) -> None:
    monkeypatch.setattr(accounts, "LOCKED", tmp_path / "locked")
    lockout = accounts.Lockout(lambda: 1000.0)
    seen = [logged_in(service, lockout, right) for _ in range(10)]
    assert seen == [right] * 10
    assert accounts.is_locked(1000.0) is not right
    assert logged_in(service, lockout, True) is right


def logged_in(service: standin.Service, lockout: accounts.Lockout, right: bool) -> bool:
    """Whether the listener lets a client in that sends its last message, with a right password or a wrong one."""
    handler = winrmd.Handler.__new__(winrmd.Handler)

    def step(_token: bytes) -> bytes:
        if not right:
            raise ValueError("a wrong password")
        handler.known = True
        return b""

    handler.service, handler.lockout, handler.context, handler.known = service, lockout, object(), False
    handler._step = step  # type: ignore[method-assign]
    handler.log_error = lambda *_: None  # type: ignore[method-assign]
    handler.path, handler.request_version, handler.requestline = "/wsman", "HTTP/1.1", "POST /wsman HTTP/1.1"
    handler.headers = Message()
    handler.headers["Content-Length"] = "1"
    handler.headers["Authorization"] = "Negotiate YWJj"
    handler.rfile, handler.wfile = io.BytesIO(b"x"), io.BytesIO()
    handler.do_POST()
    return b" 401 " not in handler.wfile.getvalue().partition(b"\r\n")[0]


def answered(service: standin.Service, size: int) -> tuple[bytes, int]:
    """What the listener answers to a request of *size* bytes, and how much of it is left unread."""
    handler = winrmd.Handler.__new__(winrmd.Handler)
    handler.service, handler.known = service, True
    handler.path, handler.request_version, handler.requestline = "/wsman", "HTTP/1.1", "POST /wsman HTTP/1.1"
    handler.headers = Message()
    handler.headers["Content-Length"] = str(size)
    asked, said = io.BytesIO(b"x" * size), io.BytesIO()
    handler.rfile, handler.wfile = asked, said
    handler.do_POST()
    return said.getvalue().partition(b"\r\n")[0], size - asked.tell()


def test_envelope_limit(service: standin.Service) -> None:
    assert answered(service, 512_000) == (b"HTTP/1.1 500 Internal Server Error", 0)  # read, and it is not XML
    status, left = answered(service, 512_001)
    assert status.startswith(b"HTTP/1.1 413 ")
    assert left == 0


def test_wrong_shell(client: Protocol) -> None:
    with pytest.raises(WSManFaultError) as caught:
        client.run_command("0C4D7A3C-0000-0000-0000-000000000000", "ver")
    assert caught.value.wsman_fault_code == standin.NO_SHELL
    assert caught.value.fault_subcode == "w:InvalidSelectors"


def test_a_shell_does_not_survive_a_restart(client: Protocol, service: standin.Service) -> None:
    shell = client.open_shell()
    started_anew = standin.Service(service.make)
    service.handle = started_anew.handle  # type: ignore[method-assign]
    with pytest.raises(WSManFaultError, match="was not found") as caught:
        client.run_command(shell, "hostname")
    assert caught.value.wsman_fault_code == standin.NO_SHELL


def test_an_idle_shell_ends_and_its_commands_with_it(
    client: Protocol, service: standin.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(standin.time, "monotonic", lambda: now[0])
    shell = client.open_shell(idle_timeout="PT600S")
    command = client.run_command(shell, "exit", ("3",))
    assert client.get_command_output(shell, command)[2] == 3
    now[0] = 599
    assert client.get_command_output(shell, command)[2] == 3  # a request makes it busy again
    now[0] = 1198
    other = client.open_shell()
    (mine,) = service.sessions[shell.upper()].commands.values()
    now[0] = 1201
    with pytest.raises(WSManFaultError):
        client.get_command_output(shell, command)
    assert mine.ended
    now[0] = 7000
    client.close_shell(other, close_session=False)


def test_closed_shell(client: Protocol) -> None:
    shell = client.open_shell()
    client.close_shell(shell, close_session=False)
    with pytest.raises(WSManFaultError):
        client.run_command(shell, "ver")


def test_wrong_resource_and_action(client: Protocol, service: standin.Service) -> None:
    import xmltodict

    for resource, action, code in (
        ("http://schemas.microsoft.com/wbem/wsman/1/wmi/root", f"{standin.TRANSFER}/Get", standin.BAD_RESOURCE),
        (standin.CMD, f"{standin.SHELL}/Nonsense", standin.BAD_ACTION),
    ):
        shell = client.open_shell()
        request = {"env:Envelope": client.build_wsman_header(action, resource, shell)}
        request["env:Envelope"]["env:Body"] = {}
        status, body = service.handle(xmltodict.unparse(request).encode())
        assert status == 500
        assert f'Code="{code}"'.encode() in body


@pytest.mark.parametrize("body", [b"", b"<", b"<a/>", b"\xff\xfe"])
def test_a_malformed_request_is_a_fault(service: standin.Service, body: bytes) -> None:
    status, answer = service.handle(body)
    assert status == 500
    ElementTree.fromstring(answer)


def test_identify(service: standin.Service) -> None:
    status, body = service.handle(
        b'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" '
        b'xmlns:i="http://schemas.dmtf.org/wbem/wsman/identity/1/wsmanidentity.xsd"><s:Header/>'
        b"<s:Body><i:Identify/></s:Body></s:Envelope>"
    )
    assert status == 200
    assert b"OS: 10.0.20348" in body


def test_a_bug_is_seen_by_the_caller(
    service: standin.Service, client: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(Shell, "run", broken)
    out, err, code = run(client, "ver")
    assert (out, code) == (b"", 1)
    assert b"stand-in: RuntimeError: broken" in err


@pytest.mark.parametrize(
    ("text", "value"), [("PT20S", 20), ("PT1M0.5S", 60.5), ("PT1H", 3600), ("nonsense", 20), ("PT", 20)]
)
def test_durations(text: str, value: float) -> None:
    assert standin.seconds(text) == value
