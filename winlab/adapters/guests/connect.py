"""Logs in to a guest: by its system's usual way, or by an alternative if that one is unresponsive.

A way is unresponsive if it does not answer though the guest is up. WinRM answers minutes after Windows has started, so
the guest must first have answered by the alternative for a while. Each login tries the usual way again. A refusal
(another key, another password) is an answer: nothing is tried after it.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from winlab.adapters.guests.base import Guest, Kept, at_most
from winlab.adapters.guests.file_system import FileSystem
from winlab.adapters.guests.systems import ways
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError, UsageError, WinlabError
from winlab.events import NodeTransport
from winlab.lab_folder import LabFolder

NAMES = {"ssh": "ssh", "winrm": "WinRM"}
DEAF = 120.0  # seconds for which the alternative has answered and the usual way has not
AGAIN = 15.0  # seconds from one try of the alternative to the next, until then
FORGOTTEN = 600.0  # seconds after which earlier tries no longer count
LATEST = 20  # seconds for a connection by an alternative, because the caller waits for the node
MOST = 1 << 12  # bytes of a shell's answer
ANSWER = 120.0  # seconds for that answer: an emulated guest takes a few
KNOCK = 5.0  # seconds in which a way that was unresponsive must accept a connection


@dataclass
class _Heard:
    """What this process knows of a node's answers.

    :param since: when the alternative began to answer while the usual way did not; None: it has not.
    :param tried: when the alternative was last tried.
    :param asked: when a login was last tried.
    :param spare: the alternative that is used now; empty: none.
    :param told: the same, as last reported to a user.
    """

    since: float | None = None
    tried: float = 0.0
    asked: float = 0.0
    spare: str = ""
    told: str = ""


_heard: dict[tuple[str, str], _Heard] = {}
_lock = threading.Lock()


def connect(tag: Tag, folder: LabFolder, via: str | None = None, timeout: float = 30) -> Guest:
    """Log in to a node.

    :param via: ssh or winrm, and nothing else; by default its system's usual way, or else an alternative.
    :param timeout: seconds for the connection to be made.
    :raises GuestError: it can't be reached, is not the expected one, or refuses the login.
    """
    if via is not None:
        return _log_in(via, tag, folder, timeout)
    node = _asked(tag)
    try:
        if node.spare:
            _knock(tag)
        guest = _log_in(tag.system.login, tag, folder, timeout)
    except UnreachableError:
        if (spare := _spare(node, tag, folder, timeout)) is None:
            raise
        return spare
    with _lock:
        node.since, node.spare = None, ""
    return guest


def files(tag: Tag, folder: LabFolder, *, root: bool = False, timeout: float = 30) -> FileSystem:
    """A node's files: by sftp; by WinRM on a Windows node whose ssh does not answer, or is missing.

    :param root: use the rights of root, on Linux.
    :param timeout: seconds for the connection to be made.
    :raises UsageError: *root* for another system.
    :raises GuestError: it can't be reached, is not the expected one, or refuses the login.
    """
    if root and tag.system.login != "ssh":
        raise UsageError(f"'{tag.node}' runs {tag.system.title}, whose files are an administrator's already.")
    from winlab.adapters.guests.sftp import SftpFiles
    from winlab.adapters.guests.ssh import SshGuest

    try:
        return SftpFiles(SshGuest(tag, folder, timeout), tag, root=root)
    except UnreachableError:
        if tag.system.login != "winrm":
            raise
    from winlab.adapters.guests.winrm_files import WinRmFiles

    return WinRmFiles(_log_in("winrm", tag, folder, timeout), tag)


def change(tag: Tag) -> NodeTransport | None:
    """The transport by which winlab reaches a node now, if it has changed since it was last reported."""
    node = _of(tag)
    with _lock:
        if node.spare == node.told:
            return None
        node.told = node.spare
    own = NAMES[tag.system.login]
    if not node.told:
        return NodeTransport(node=tag.node, transport=tag.system.login, text=f"'{tag.node}' answers {own} again.")
    return NodeTransport(
        node=tag.node,
        transport=node.told,
        unresponsive=(tag.system.login,),
        sign=node.told,
        text=f"'{tag.node}' is up but does not answer {own}: winlab uses {NAMES[node.told]} instead.",
    )


def is_heard(tag: Tag) -> bool:
    """Whether a node answered by an alternative when that was last tried."""
    return _of(tag).since is not None


def _of(tag: Tag) -> _Heard:
    with _lock:
        return _heard.setdefault((tag.lab, tag.node), _Heard())


def _asked(tag: Tag) -> _Heard:
    """What is known of a node that is asked now: nothing, if it was not asked for long."""
    now, node = time.monotonic(), _of(tag)
    with _lock:
        if now - node.asked > FORGOTTEN:
            node.since, node.tried = None, 0.0
        node.asked = now
    return node


def _spare(node: _Heard, tag: Tag, folder: LabFolder, timeout: float) -> Guest | None:
    """A login by an alternative, if the guest has answered by it for long enough."""
    now = time.monotonic()
    if not node.spare and now - node.tried < AGAIN:
        return None
    for way in tag.system.spare_logins:
        node.tried = now
        try:
            guest = _log_in(way, tag, folder, min(timeout, LATEST))
            if not _understands(guest, tag):
                guest.close()
                continue
        except GuestError:
            continue
        with _lock:
            node.since = now if node.since is None else node.since
            if node.spare or now - node.since >= DEAF:
                node.spare = way
                return guest
        with suppress(WinlabError):
            guest.close()
        return None
    with _lock:
        node.since, node.spare = None, ""  # it may be restarting
    return None


def _log_in(way: str, tag: Tag, folder: LabFolder, timeout: float) -> Guest:
    # the libraries of ssh take a sixth of a second to import, WinRM's half a second
    if way == "ssh":
        from winlab.adapters.guests.ssh import SshGuest

        return SshGuest(tag, folder, timeout)
    from winlab.adapters.guests.winrm import WinRmGuest

    return WinRmGuest(tag, folder, timeout)


def _understands(guest: Guest, tag: Tag) -> bool:
    def execute(command: list[str], stdin: bytes = b"") -> str:
        heard = Kept(MOST)
        guest.execute(command, heard, stdin=stdin, waiting=at_most(ANSWER))
        return str(heard)

    return ways(tag.system).understands(execute)


def _knock(tag: Tag) -> None:
    """Check that WinRM accepts a connection: its libraries would wait for half a minute.

    :raises UnreachableError: it does not.
    """
    from winlab.adapters.guests.winrm import PORT

    try:
        socket.create_connection((tag.floating, PORT), KNOCK).close()
    except OSError as error:
        raise UnreachableError(
            f"'{tag.node}' does not answer WinRM at {tag.floating}:{PORT}.",
            why=str(error),
            cure=f"See 'winlab status' and 'winlab serial {tag.node} --log'.",
        ) from error
