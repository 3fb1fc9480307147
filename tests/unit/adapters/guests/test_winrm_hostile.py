"""A node that someone has broken into answers WinRM as it likes: nothing but that node is asked, within limits."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import requests
from spnego._ntlm_raw.crypto import ntowfv1
from winrm_peer import MESSAGE, SHELL, Serve, listening

from winlab.adapters.guests import winrm
from winlab.adapters.guests.winrm import WinRmGuest
from winlab.design.plan import tags
from winlab.errors import GuestError, UnreachableError
from winlab.lab_folder import LabFolder
from winlab_standin.guest import accounts, winrmd

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/soap+xml\r\n"
LONG = 64 << 20  # bytes that a peer sends at most, so that a winlab without limits ends, too


@contextmanager
def node(monkeypatch: pytest.MonkeyPatch, folder: Path, serve: Serve) -> Iterator[list[tuple[str, int]]]:
    """A node that serves like this; yields the addresses that were asked for."""
    plan, lab = plans.make(plans.TCG), LabFolder("lab")
    with listening(monkeypatch, folder, serve) as start:
        yield start(lab.ensure_credentials(plan), "node-1")


def log_in() -> None:
    plan = plans.make(plans.TCG)
    with closing(WinRmGuest(tags.of(plan, plan.node("node-1")), LabFolder("lab"), 30)) as guest:
        assert guest._shell == "1"


class Peer:
    """Sends *head* and then *block* again and again, as an answer to each request. ``sent`` counts the bytes."""

    def __init__(self, head: bytes, block: bytes = b"", *, pause: float = 0.0) -> None:
        self.head, self.block, self.pause = head, block, pause
        self.sent = 0
        self.requests = 0

    def __call__(self, stream: ssl.SSLSocket) -> None:
        while request := stream.recv(1 << 16):
            if not request.startswith((b"POST", b"GET")):
                continue  # the body of one
            self.requests += 1
            stream.sendall(self.head)
            while self.block and self.sent < LONG:
                stream.sendall(self.block)
                self.sent += len(self.block)
                time.sleep(self.pause)
            if self.block:
                return


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("to", ["http://127.0.0.1:80/admin?delete=all", "https://169.254.169.254/", "/wsman"])
def test_no_redirect_is_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: int, to: str) -> None:
    """N3: the host asked whatever a guest said, and logged in there as the Administrator."""
    peer = Peer(f"HTTP/1.1 {status} x\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())
    with node(monkeypatch, tmp_path, peer) as asked:
        with pytest.raises(GuestError, match="WinRM on 'node-1' refuses") as caught:
            log_in()
        assert "redirects" in caught.value.why
        assert len(asked) == 1
    assert peer.requests == 1


@pytest.mark.parametrize("url", ["http://192.0.2.1:5986/wsman", "https://192.0.2.2:5986/wsman", "https://192.0.2.1/"])
def test_the_connection_can_ask_no_other_address(url: str) -> None:
    """It has the Administrator's password."""
    where, account = "https://192.0.2.1:5986/wsman", {"username": "a", "password": "b"}
    protocol = winrm.Protocol(name="x", endpoint=where, transport="ntlm", ca_trust_path="/ca", proxy=None, **account)
    with pytest.raises(requests.exceptions.InvalidSchema):
        protocol.transport.build_session().post(url)


@pytest.mark.parametrize(
    ("head", "block"),
    [
        (HEAD + b"Connection: close\r\n\r\n", b"x" * (1 << 16)),
        (HEAD + b"Content-Length: 100000000000\r\n\r\n", b"x" * (1 << 16)),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * (1 << 16) + b"\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * (1 << 16)),  # the line with a chunk's size
        (HEAD, b"X-More: " + b"x" * 60_000 + b"\r\n"),
        (b"", b"x" * (1 << 16)),
    ],
)
def test_an_endless_answer_takes_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, head: bytes, block: bytes
) -> None:
    """N4: it was read as a whole, 1.5 GB in 5 s."""
    peer = Peer(head, block)
    with node(monkeypatch, tmp_path, peer), pytest.raises(GuestError):
        log_in()
    assert peer.sent < 16 << 20  # with what is in buffers


def test_a_compressed_answer_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """4 MB of it are 4 GB."""
    peer = Peer(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 100\r\n\r\n" + bytes(100))
    with node(monkeypatch, tmp_path, peer), pytest.raises(GuestError, match="refuses") as caught:
        log_in()
    assert "compressed" in caught.value.why


@pytest.mark.timeout(60)
@pytest.mark.parametrize("head", [b"", HEAD + b"Connection: close\r\n\r\n", HEAD + b"Content-Length: 10000\r\n\r\n"])
def test_an_answer_that_trickles_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, head: bytes) -> None:
    """N4: each byte began a new time limit, and 'status' waited forever."""
    monkeypatch.setattr(winrm, "PATIENCE", 0.03)  # of half a minute
    peer = Peer(head, b"x", pause=0.05)
    with node(monkeypatch, tmp_path, peer), pytest.raises(UnreachableError) as caught:
        log_in()
    assert "no complete answer within 1 s" in caught.value.why
    assert peer.sent < 10_000


def test_windows_own_login_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NTLM over this connection, with the stand-in's listener: three requests, each read as above."""
    plan, lab = plans.make(plans.TCG), LabFolder("lab")
    password = lab.ensure_credentials(plan).administrator_password
    users = tmp_path / "users"
    users.write_text(accounts.ntlm_lines(ntowfv1(password).hex().upper(), "NODE-1"))
    monkeypatch.setenv("NTLM_USER_FILE", str(users))
    shells: list[bytes] = []

    def handle(body: bytes) -> tuple[int, bytes]:
        message = MESSAGE.search(body)
        assert message is not None
        shells.append(message[1])
        return 200, SHELL % message[1]

    def serve(stream: ssl.SSLSocket) -> None:
        handler: Any = type("Handler", (winrmd.Handler,), {"service": SimpleNamespace(handle=handle)})
        handler(stream, ("127.0.0.1", 1), None)

    with node(monkeypatch, tmp_path, serve) as asked:
        log_in()
        assert len(asked) == 1
    assert len(shells) == 2  # one message opens the shell, the other closes it
