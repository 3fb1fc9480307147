"""WinRM verifies a node by its name, over real TLS. The server is Python's, on a pair of sockets."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import plans
import pytest
import urllib3.util.connection

from winlab.adapters.guests.winrm import WinRmGuest
from winlab.design import spec
from winlab.design.plan import make, tags
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError
from winlab.lab_folder import LabFolder

SHELL = b'<Envelope><RelatesTo>%s</RelatesTo><Selector Name="ShellId">1</Selector></Envelope>'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/soap+xml\r\nContent-Length: %d\r\n\r\n%s"
MESSAGE = re.compile(rb"MessageID>(uuid:[^<]+)<")
Listen = Callable[[Credentials, str], list[tuple[str, int]]]


def copy(origin: Plan) -> Plan:
    wanted = spec.load("1-2-1")
    return make.make(wanted, "copy", plans.TCG, plans.stock(wanted), kept=origin.as_kept())


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Listen]:
    """Have a node's WinRM answer at every address; the addresses that were asked for."""
    threads: list[threading.Thread] = []

    def start(made: Credentials, node: str) -> list[tuple[str, int]]:
        identity, file = made.nodes[node], tmp_path / "identity.pem"
        file.write_text(identity.certificate + identity.certificate_key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        asked: list[tuple[str, int]] = []

        def connect(where: tuple[str, int], *_: object, **__: object) -> socket.socket:
            asked.append(where)
            here, there = socket.socketpair()
            threads.append(threading.Thread(target=serve, args=(context, there), daemon=True))
            threads[-1].start()
            return here

        monkeypatch.setattr(urllib3.util.connection, "create_connection", connect)
        return asked

    yield start
    for thread in threads:
        thread.join(30)


def serve(context: ssl.SSLContext, there: socket.socket) -> None:
    with suppress(OSError), there, context.wrap_socket(there, server_side=True) as stream:
        while request := stream.recv(1 << 16):
            if (message := MESSAGE.search(request)) is not None:
                shell = SHELL % message[1]
                stream.sendall(ANSWER % (len(shell), shell))


def log_in(tag: Tag, folder: LabFolder) -> None:
    with closing(WinRmGuest(tag, folder, 30)) as guest:
        assert guest._shell == "1"


def test_the_right_name_passes_at_any_address(listen: Listen) -> None:
    plan, folder = plans.make(plans.TCG, "1-2-1"), LabFolder("lab")
    tag = tags.of(plan, plan.node("node-1"))
    asked = listen(folder.ensure_credentials(plan), "node-1")
    for address in (tag.floating, "172.31.249.9"):
        log_in(tag.model_copy(update={"floating": address}), folder)
    assert [where for where, _ in asked] == [tag.floating, "172.31.249.9"]


def test_another_node_is_refused_at_its_own_address(listen: Listen) -> None:
    """The address is in its certificate, and the CA is the lab's; the name is another one."""
    plan, folder = plans.make(plans.TCG, "1-2-1"), LabFolder("lab")
    tag = tags.of(plan, plan.node("node-1"))
    listen(folder.ensure_credentials(plan), "node-2")
    for address in (plan.node("node-2").floating, tag.floating):
        with pytest.raises(GuestError, match="is not 'node-1'"):
            log_in(tag.model_copy(update={"floating": address}), folder)


def test_a_node_of_another_lab_is_refused(listen: Listen) -> None:
    plan, folder = plans.make(plans.TCG), LabFolder("lab")
    folder.ensure_credentials(plan)
    listen(LabFolder("other").ensure_credentials(plan), "node-1")
    with pytest.raises(GuestError, match="is not 'node-1'"):
        log_in(tags.of(plan, plan.node("node-1")), folder)


def test_a_copy_is_verified_by_the_certificate_of_its_origin(listen: Listen) -> None:
    origin = plans.make(plans.TCG, "1-2-1", lab="origin")
    made, plan, folder = LabFolder("origin").ensure_credentials(origin), copy(origin), LabFolder("copy")
    folder.write(folder.path / "credentials.json", made.model_dump_json())
    assert folder.ensure_credentials(plan) == made
    tag = tags.of(plan, plan.node("node-1"))
    asked = listen(made, "node-1")
    log_in(tag, folder)
    assert asked == [(tag.floating, 5986)]
    with pytest.raises(GuestError, match="is not 'node-1'"):  # without what it keeps it would be another node
        log_in(tag.model_copy(update={"zone": None}), folder)
