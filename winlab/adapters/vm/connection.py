"""The connection to libvirt, and its errors as winlab's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias
from urllib.parse import quote, urlsplit

import libvirt

from winlab import settings, stopping
from winlab.adapters import remote
from winlab.adapters.remote import Remote
from winlab.errors import AccessError, HostError, WinlabError

Connection: TypeAlias = libvirt.virConnect
# Seconds for opening a connection; ssh has 5 of them for itself. Hypervisors are asked at the same time, and one that
# hangs delays every command by as much, even if nothing there is needed. An open connection has no keepalive: libvirtd
# answers none while five requests take long (max_client_requests). After 30 s of that, or of a winlab stopped by
# Ctrl-Z, it would close the connection.
OPENING = 10.0
FIRST = 60.0  # of the first hypervisor, without which there is nothing to do: a busy host may need it
UNREACHED = ("No route to host", "timed out", "Network is unreachable")  # ssh's words for a host that it can't reach


def _quiet(_context: object, _error: object) -> None:
    """Drop what libvirt would print to stderr: winlab raises the errors."""


libvirt.registerErrorHandler(_quiet, None)


def connect(uri: str | None = None, limit: float | None = None) -> libvirt.virConnect:
    """Open a connection; *uri* defaults to :func:`settings.libvirt_uri`.

    :param limit: seconds in which it must be open; by default :data:`FIRST`.
    :raises AccessError: this user may not use libvirt.
    :raises HostError: libvirt does not answer.
    """
    uri = uri or settings.libvirt_uri()
    host, by_ssh = Remote.of(uri), _by_program(uri)
    there = "" if host is None else f" on '{host}'"
    try:
        return stopping.patiently(lambda: libvirt.open(by_ssh), limit=FIRST if limit is None else limit)
    except TimeoutError as error:
        raise HostError(
            f"libvirt at '{uri}' does not answer.",
            why=f"It took the connection, and gave {error}: it hangs, or the host is overloaded.",
            cure=f"End libvirtd{there}, then run 'sudo winlab host setup'{there}; it starts it again.",
        ) from error
    except libvirt.libvirtError as error:
        text = str(error)
        refused = "ermission denied" in text or "authentication" in text
        if host is not None and "libvirt-sock" not in text:
            why = f"The host is off or cut off: {text}" if any(words in text for words in UNREACHED) else text
            raise HostError(f"libvirt at '{uri}' does not answer.", why=why, cure=host.cure) from error
        if refused:
            raise AccessError(
                f"Permission denied: libvirt at '{uri}'.",
                why=text,
                cure=f"Run 'sudo usermod -aG {settings.GROUP} $USER'{there} and log in again.",
            ) from error
        raise HostError(
            f"libvirt at '{uri}' does not answer.",
            why=text,
            cure=f"Run 'sudo winlab host setup'{there}; 'winlab doctor' shows more.",
        ) from error


def _by_program(uri: str) -> str:
    """A URI by ssh with the program that has limits; one that names a program keeps its own."""
    if Remote.of(uri) is None or "command=" in urlsplit(uri).query:
        return uri
    return f"{uri}{'&' if urlsplit(uri).query else '?'}command={quote(str(remote.program()))}"


@contextmanager
def connected(uri: str | None = None) -> Iterator[libvirt.virConnect]:
    """A connection for the length of a with-block."""
    conn = connect(uri)
    try:
        yield conn
    finally:
        close(conn)


def close(conn: libvirt.virConnect) -> None:
    """End a connection."""
    with suppress(libvirt.libvirtError):  # it was lost
        conn.close()


def versions(conn: libvirt.virConnect) -> dict[str, str]:
    """The versions of libvirt's library and daemon, and of the hypervisor behind it.

    :raises HostError: libvirt does not answer.
    """
    with answering():
        numbers = {
            "libvirt library": libvirt.getVersion(),
            "libvirt": conn.getLibVersion(),
            conn.getType(): conn.getVersion(),
        }
    # source: virGetVersion, 1,000,000 * major + 1,000 * minor + release
    return {name: f"{it // 1_000_000}.{it // 1000 % 1000}.{it % 1000}" for name, it in numbers.items()}


@contextmanager
def answering() -> Iterator[None]:
    """Turn libvirt's errors in the block into a :class:`HostError`; also a decorator for mere queries."""
    try:
        yield
    except libvirt.libvirtError as error:
        raise _lost(error) or HostError(
            "libvirt does not answer a question.",
            why=str(error),
            cure="Run 'winlab doctor'; then the same command again.",
        ) from error


@answering()
def capacity(conn: libvirt.virConnect) -> tuple[int, int]:
    """How many processors a host has, and its memory in MiB."""
    memory = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)  # virNodeGetInfo's may be of one NUMA node
    return int(conn.getInfo()[2]), int(memory.get("total", 0)) >> 10


@contextmanager
def explained(what: str, cure: str = "", evidence: str = "") -> Iterator[None]:
    """Turn libvirt's errors in the block into a :class:`WinlabError` that says *what*.

    :raises HostError: the connection was lost.
    """
    try:
        yield
    except libvirt.libvirtError as error:
        raise _lost(error) or WinlabError(what, why=str(error), cure=cure, evidence=evidence) from error


def _lost(error: libvirt.libvirtError) -> HostError | None:
    """The error for a connection that ended, as when libvirt was restarted; None: the error has another cause."""
    if error.get_error_domain() != libvirt.VIR_FROM_RPC:
        return None
    return HostError(
        "The connection to libvirt was lost.",
        why=f"libvirt was restarted or stopped: {error}",
        cure="Run the same command again: it resumes. If libvirt does not run, 'sudo winlab host setup' starts it.",
    )
