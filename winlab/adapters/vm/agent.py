"""QEMU's guest agent: evidence from a guest that can't be reached over the network, and the clock of a restored one.

Its answers come from the guest, and are trusted no more than anything else from there. Sources: QEMU's "QEMU Guest
Agent Protocol Reference" (guest-ping, guest-set-time, guest-exec, guest-exec-status); libvirt's
virDomainQemuAgentCommand.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Sequence

import libvirt
import libvirt_qemu

from winlab import documents, stopping
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Named, find
from winlab.errors import GuestError, UnreachableError

ANSWER = 5  # seconds for the answer to one request
SILENCE = 30.0  # seconds without an answer about a running program: a busy guest's agent may need more than ANSWER
LIMIT = 60.0  # seconds for a command
POLL = 0.5  # seconds
OUTPUT = 8 << 20  # bytes of one stream; libvirt itself refuses an answer of more than 10 MiB


def answers(conn: Connection, machine: Named) -> bool:
    """Whether the agent of a running guest answers."""
    try:
        _ask(conn, machine, "guest-ping")
    except GuestError:
        return False
    return True


def set_clock(conn: Connection, machine: Named, ahead: float = 0.0) -> bool:
    """Set a guest's clock to the host's; returns whether its agent did so. Faster than a login by far.

    :param ahead: seconds to add.
    """
    try:
        _ask(conn, machine, "guest-set-time", time=round((time.time() + ahead) * 1e9))
    except GuestError:
        return False
    return True


def execute(
    conn: Connection, machine: Named, words: Sequence[str], stdin: bytes = b"", limit: float = LIMIT
) -> tuple[int, bytes, bytes]:
    """Run a program in the guest, as its agent's user; returns its exit code, output and errors.

    :param limit: seconds after which the wait ends; the program keeps running in the guest.
    :raises UnreachableError: the agent does not answer.
    :raises GuestError: it refuses, answers nonsense, or the program does not end in time.
    """
    more = {"input-data": base64.b64encode(stdin).decode()} if stdin else {}
    started = _ask(conn, machine, "guest-exec", path=words[0], arg=list(words[1:]), **{"capture-output": True}, **more)
    pid = started.get("pid") if isinstance(started, dict) else None
    if type(pid) is not int:
        raise GuestError(f"The guest agent in '{machine.domain}' does not say what it started.")
    heard = time.monotonic()
    end = heard + limit
    while time.monotonic() < end:
        stopping.check()
        try:
            status = _ask(conn, machine, "guest-exec-status", pid=pid)
        except UnreachableError:
            if time.monotonic() - heard > SILENCE:
                raise
            time.sleep(POLL)
            continue
        heard = time.monotonic()
        if not isinstance(status, dict):
            break
        if status.get("exited") is True:
            # a program that an exception or a signal ended has no exit code
            code = status.get("exitcode", -1)
            return (code if type(code) is int else -1), _output(status, "out-data"), _output(status, "err-data")
        time.sleep(POLL)
    raise GuestError(
        f"'{words[0]}' has not ended in '{machine.domain}' within {limit:.0f} s.", why="Its guest agent started it."
    )


def _output(status: dict[str, object], stream: str) -> bytes:
    text = status.get(stream, "")
    try:
        return base64.b64decode(text if isinstance(text, str) else "", validate=True)[:OUTPUT]
    except (binascii.Error, ValueError):
        return b""


def _ask(conn: Connection, machine: Named, what: str, **arguments: object) -> object:
    """What the agent returns.

    :raises UnreachableError: it does not answer, or there is none.
    :raises GuestError: it refuses.
    """
    question = {"execute": what, "arguments": arguments} if arguments else {"execute": what}
    try:
        domain = find(conn, machine)
        if domain is None:
            raise UnreachableError(f"There is no domain '{machine.domain}'.")
        told = documents.from_json(libvirt_qemu.qemuAgentCommand(domain, json.dumps(question), ANSWER, 0))
    except libvirt.libvirtError as error:
        refused = error.get_error_code() == libvirt.VIR_ERR_INTERNAL_ERROR
        kind = GuestError if refused else UnreachableError
        raise kind(f"The guest agent in '{machine.domain}' does not do '{what}'.", why=str(error)) from error
    except ValueError as error:
        raise GuestError(f"The guest agent in '{machine.domain}' gave an invalid answer.", why=str(error)) from error
    return told.get("return") if isinstance(told, dict) else None
