"""Sockets of OVN's databases for the group, besides root's own: the northbound one, and the southbound one to read."""

from __future__ import annotations

import grp
import os
from dataclasses import dataclass
from pathlib import Path

from winlab import settings
from winlab.errors import HostError
from winlab.events import Progress
from winlab.host.changes import Record
from winlab.host.daemons import OVN_RUN, wait_until
from winlab.run import Result, run

PROBE_MS = 60_000  # a client on a busy host may be silent for long; ovsdb-server's default of 5 s would disconnect it


@dataclass(frozen=True)
class Socket:
    """A socket of a database, which a row of its table ``Connection`` makes ovsdb-server open.

    ``table`` is the one whose row has the connections, and ``options`` are columns of the connection.
    """

    path: Path
    program: str
    own: Path
    table: str
    options: tuple[str, ...]
    log: str

    def ask(self, *words: str, check: bool = True) -> Result:
        """Run the database's program, as root."""
        return run(
            [self.program, f"--db=unix:{self.own}", "--no-leader-only", "--timeout=20", *words], check=check, timeout=40
        )

    def connections(self) -> list[str]:
        """The uuids of the connections that are ours."""
        find = ("--bare", "--columns=_uuid", "find", "Connection", f'target="punix:{self.path}"')
        return self.ask(*find).stdout.split()

    def is_closed(self) -> bool:
        """Whether the socket is gone, as when ovsdb-server has closed it."""
        return not self.path.exists()

    def close(self, uuids: list[str]) -> None:
        """Remove connections."""
        for uuid in uuids:
            self.ask("remove", self.table, ".", "connections", uuid, check=False)


NORTHBOUND = Socket(
    settings.NB_SOCKET, "ovn-nbctl", OVN_RUN / "ovnnb_db.sock", "NB_Global", (), "/var/log/ovn/ovsdb-server-nb.log"
)
# How far each host's controller has followed is only there (winlab.adapters.overlay.southbound).
SOUTHBOUND = Socket(
    settings.SB_GROUP_SOCKET,
    "ovn-sbctl",
    OVN_RUN / "ovnsb_db.sock",
    "SB_Global",
    ("read_only=true",),
    "/var/log/ovn/ovsdb-server-sb.log",
)


def ensure(one: Socket, record: Record, progress: Progress) -> None:
    """Open a socket to the group.

    Its folder is setgid, so the socket that ovsdb-server creates in it belongs to the group.

    :raises HostError: the socket did not appear.
    """
    # Some distributions run ovsdb-server as a user of its own, which must be able to create the socket.
    group = ensure_folder(record, one.own.stat().st_uid)
    connections = one.connections()
    if connections and not wait_until(one.path.exists, 1):
        # ovsdb-server started before the folder existed, and does not retry by itself.
        one.close(connections)
        connections = []
    if not connections:
        progress.say(f"opening {one.path} for the group {settings.GROUP}")
        record.mark("connection")
        columns = (f'target="punix:{one.path}"', f"inactivity_probe={PROBE_MS}", *one.options)
        one.ask("--", "--id=@c", "create", "Connection", *columns, "--", "add", one.table, ".", "connections", "@c")
    if not wait_until(one.path.exists, 10):
        raise HostError(f"ovsdb-server did not create the socket '{one.path}'.", cure="See its log.", evidence=one.log)
    # ovsdb-server's umask may have removed the group's write permission, which connecting needs.
    if one.path.stat().st_gid != group:
        os.chown(one.path, -1, group)
    if one.path.stat().st_mode & 0o060 != 0o060:
        one.path.chmod(0o770)


def ensure_folder(record: Record, owner: int) -> int:
    """Make the folder of both sockets; returns the group's id.

    :param owner: the user that ovsdb-server runs as.
    """
    folder = settings.NB_SOCKET.parent
    group = grp.getgrnam(settings.GROUP).gr_gid
    record.add("folders", str(folder))
    folder.mkdir(exist_ok=True)
    was = folder.stat()
    if (was.st_uid, was.st_gid, was.st_mode & 0o7777) != (owner, group, 0o2750):
        os.chown(folder, owner, group)
        folder.chmod(0o2750)
    return group


def undo(record: Record) -> None:
    """Close both, while OVN still runs."""
    if record.changes.connection:
        for one in (NORTHBOUND, SOUTHBOUND):
            one.close(one.connections())
            wait_until(one.is_closed, 5)
        record.changes.connection = False
        record.save()
    for one in (NORTHBOUND, SOUTHBOUND):
        one.path.unlink(missing_ok=True)
