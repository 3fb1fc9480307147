"""A serial port as libvirt's stream gives it."""

from __future__ import annotations

from typing import Any

import libvirt
import pytest

from winlab.adapters.vm import console, domains
from winlab.errors import WinlabError


class Stream:
    """A stream of given answers; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent = bytearray()
        self.is_aborted = False

    def recv(self, _most: int) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def send(self, typed: bytes) -> None:
        if not self.answers:
            raise libvirt.libvirtError("gone")
        self.sent += typed

    def abort(self) -> None:
        self.is_aborted = True


class Domain:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def openConsole(self, _device: None, _stream: Stream, flags: int) -> None:
        assert flags == 0  # not by force: someone else may be connected
        if self._error:
            raise self._error


class Connection:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def newStream(self, flags: int) -> Stream:
        assert flags == libvirt.VIR_STREAM_NONBLOCK
        return self.stream


def opened(monkeypatch: pytest.MonkeyPatch, stream: Stream, domain: Domain) -> Any:
    monkeypatch.setattr(domains, "get", lambda _conn, _machine: domain)
    machine: Any = type("Machine", (), {"domain": "winlab-lab.node-1", "uuid": ""})
    return console.opened(Connection(stream), machine)  # type: ignore[arg-type]


def test_what_comes_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(-2, b"login: ", b"", libvirt.libvirtError("gone"))
    with opened(monkeypatch, stream, Domain()) as port:
        assert [port.read() for _ in range(4)] == [b"", b"login: ", None, None]
    assert stream.is_aborted


def test_typing_ends_with_the_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(b"x")
    with opened(monkeypatch, stream, Domain()) as port:
        port.write(b"root\n")
        assert stream.sent == b"root\n"
        port.read()
        with pytest.raises(WinlabError, match="no input"):
            port.write(b"more")


def test_a_port_that_someone_else_uses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    error = libvirt.libvirtError("Active console session exists for this domain")
    with pytest.raises(WinlabError, match="can't be opened"), opened(monkeypatch, Stream(), Domain(error)):
        pass
