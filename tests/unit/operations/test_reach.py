"""A command in a node: its input, and output that can't be written. The screen of one on another host."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import lab_fakes
import pytest
from sites import FakeSite

from winlab.adapters.remote import Remote
from winlab.adapters.vm import display
from winlab.errors import OffError, UnreachableError, UsageError
from winlab.operations import look, reach


class Guest:
    """Prints its input. Any error of the connection is one of the operating system."""

    def __init__(self) -> None:
        self.closed = False

    def execute(
        self, command: list[str], stdout: Callable[[bytes], None], stderr: Callable[[bytes], None], stdin: bytes
    ) -> int:
        try:
            stdout(stdin)
        except OSError as error:
            raise UnreachableError("The connection was lost.", why=str(error)) from error
        return 0

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Guest:
    made = Guest()
    monkeypatch.setattr(reach, "login", lambda *_: made)
    return made


def ignore(_chunk: bytes) -> None:
    pass


def test_a_command_gets_its_input(guest: Guest) -> None:
    out = bytearray()
    assert reach.execute("lab", "node-1", FakeSite(), ["cat"], out.extend, ignore, None, b"a b") == 0
    assert (bytes(out), guest.closed) == (b"a b", True)


@pytest.mark.parametrize("error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), OSError(errno.ENOSPC, "No space")])
def test_output_that_can_not_be_written_is_not_a_lost_connection(guest: Guest, error: OSError) -> None:
    """ux N4: 'winlab exec node -- yes | head -2' blamed the node. The connection ends, and with it the command."""

    def full(_chunk: bytes) -> None:
        raise error

    with pytest.raises(OSError, match=error.strerror) as caught:
        reach.execute("lab", "node-1", FakeSite(), ["yes"], full, ignore)
    assert caught.value is error
    assert guest.closed


def test_a_connection_that_is_lost_is_reported_as_such(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> int:
        raise UnreachableError("The connection was lost.")

    monkeypatch.setattr(reach, "login", lambda *_: SimpleNamespace(execute=lost, close=lambda: None))
    with pytest.raises(UnreachableError):
        reach.execute("lab", "node-1", FakeSite(), ["yes"], ignore, ignore)


def test_the_screen_of_a_node_on_another_host_comes_by_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "vnc", lambda *_: ("127.0.0.1", 5901))
    monkeypatch.setattr(look, "find_node", lambda *_: lab_fakes.machine("node-1"))
    credentials = SimpleNamespace(nodes={"node-1": SimpleNamespace(vnc_password="secret")})
    monkeypatch.setattr("winlab.lab_folder.LabFolder.credentials", lambda _: credentials)
    forwarded: list[tuple[Remote, int]] = []

    @contextmanager
    def forward(there: Remote, port: int) -> Iterator[int]:
        forwarded.append((there, port))
        yield 40000

    monkeypatch.setattr(reach, "forwarded_port", forward)
    site = FakeSite()
    with reach.screen_here("lab", "node-1", site) as screen:
        assert screen == reach.screen("lab", "node-1", site) == reach.Screen("127.0.0.1", 5901, "secret")
    assert forwarded == []
    monkeypatch.setattr(site, "remote", lambda _: Remote("host2", "ann"))
    with reach.screen_here("lab", "node-1", site) as screen:
        assert screen == reach.Screen("127.0.0.1", 40000, "secret", "ann@host2")
    assert reach.screen("lab", "node-1", site).host == "ann@host2"
    assert forwarded == [(Remote("host2", "ann"), 5901)]


def test_the_desktop_of_a_windows_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "find_node", lambda *_: lab_fakes.machine("node-1"))
    credentials = SimpleNamespace(administrator_password="secret")
    monkeypatch.setattr("winlab.lab_folder.LabFolder.credentials", lambda _: credentials)
    desktop = reach.desktop("lab", "node-1", FakeSite())
    assert desktop == reach.Desktop("1.2.3.4", 3389, "u", "secret")
    assert "full address:s:1.2.3.4:3389\r\n" in desktop.file()
    assert "secret" not in desktop.file()


def test_a_linux_node_has_no_desktop_and_one_that_is_off_none_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "find_node", lambda *_: lab_fakes.machine("linux-1", "linux"))
    with pytest.raises(UsageError, match="no Remote Desktop"):
        reach.desktop("lab", "linux-1", FakeSite())
    monkeypatch.setattr(look, "find_node", lambda *_: lab_fakes.machine("node-1", state="off"))
    with pytest.raises(OffError):
        reach.desktop("lab", "node-1", FakeSite())
    with pytest.raises(OffError), reach.serial("lab", "node-1", FakeSite()):
        pass
