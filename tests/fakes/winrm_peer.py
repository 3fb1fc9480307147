"""What listens at a node's WinRM port, over real TLS on pairs of sockets: it may be anything."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import urllib3.util.connection

from winlab.design.plan.credentials import Credentials

SHELL = b'<Envelope><RelatesTo>%s</RelatesTo><Selector Name="ShellId">1</Selector></Envelope>'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/soap+xml\r\nContent-Length: %d\r\n\r\n%s"
MESSAGE = re.compile(rb"MessageID>(uuid:[^<]+)<")
Serve = Callable[[ssl.SSLSocket], None]
Listen = Callable[[Credentials, str], list[tuple[str, int]]]


def kind(stream: ssl.SSLSocket) -> None:
    """Serve as a node does that has let the user in."""
    while request := stream.recv(1 << 16):
        if (message := MESSAGE.search(request)) is not None:
            shell = SHELL % message[1]
            stream.sendall(ANSWER % (len(shell), shell))


@contextmanager
def listening(monkeypatch: pytest.MonkeyPatch, folder: Path, serve: Serve = kind) -> Iterator[Listen]:
    """Have a node's WinRM answer at every address; yields what starts it, which returns the addresses asked for."""
    threads: list[threading.Thread] = []

    def start(made: Credentials, node: str) -> list[tuple[str, int]]:
        identity, file = made.nodes[node], folder / "identity.pem"
        file.write_text(identity.certificate + identity.certificate_key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        asked: list[tuple[str, int]] = []

        def connect(where: tuple[str, int], *_: object, **__: object) -> socket.socket:
            asked.append(where)
            here, there = socket.socketpair()
            threads.append(threading.Thread(target=work, args=(context, there), daemon=True))
            threads[-1].start()
            return here

        monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)
        return asked

    def work(context: ssl.SSLContext, there: socket.socket) -> None:
        with suppress(OSError), there, context.wrap_socket(there, server_side=True) as stream:
            serve(stream)

    yield start
    for thread in threads:
        thread.join(30)
