"""The programs of OVN's clustered databases (RAFT, man ovsdb 7): their files, arguments and systemd drop-ins. Pure.

ovn-ctl waits for the other servers of a cluster when it starts one. So winlab starts both servers itself, with the
files, sockets and process ids that ovn-ctl gives them. Nothing of this is used while one host has the databases.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from winlab.host.relay_program import FOLDER

# The authority of the hosts that have databases, and of no others: a host's own certificate opens nothing here.
AUTHORITY = FOLDER / "databases-ca.pem"
CERTIFICATE = FOLDER / "databases-certificate.pem"
KEY = FOLDER / "databases-key.pem"
PROGRAM = Path("/etc/winlab/ovn-databases")
NORTHD = Path("/etc/ovn/ovn-northd-db-params.conf")  # ovn-ctl gives ovn-northd what is in it
ELECTION_MS = 4000  # without a leader for so long, the others elect one; busy hosts need more than the usual 1000


@dataclass(frozen=True)
class Database:
    """One of OVN's two databases. ``port`` is for clients on other hosts with databases, ``raft`` for their servers."""

    short: str
    name: str
    port: int
    raft: int
    root: str

    @property
    def file(self) -> Path:
        """The database itself."""
        return Path(f"/var/lib/ovn/ovn{self.short}_db.db")

    @property
    def schema(self) -> Path:
        """Its schema, of the installed OVN."""
        return Path(f"/usr/share/ovn/ovn-{self.short}.ovsschema")

    def runtime(self, kind: str) -> str:
        """Its ``sock``, ``ctl`` or ``pid``."""
        return f"/run/ovn/ovn{self.short}_db.{kind}"

    @property
    def drop_in(self) -> Path:
        """The systemd drop-in of its server."""
        return Path(f"/etc/systemd/system/ovn-ovsdb-server-{self.short}.service.d/winlab-cluster.conf")

    @property
    def socket(self) -> str:
        """Its Unix socket, in OVSDB's notation."""
        return f"unix:{self.runtime('sock')}"

    def member(self, address: str) -> str:
        """Where another server of the cluster reaches the one of a host."""
        return f"ssl:{address}:{self.raft}"

    def arguments(self, address: str) -> tuple[str, ...]:
        """The server's program and its arguments, in the foreground.

        :param address: of this host, for the other hosts with databases.
        """
        return (
            "ovsdb-server",
            "-vconsole:off",
            "-vfile:info",
            f"--log-file=/var/log/ovn/ovsdb-server-{self.short}.log",
            f"--pidfile={self.runtime('pid')}",
            f"--unixctl={self.runtime('ctl')}",
            f"--private-key={KEY}",
            f"--certificate={CERTIFICATE}",
            f"--ca-cert={AUTHORITY}",
            f"--remote=p{self.socket}",
            f"--remote=pssl:{self.port}:{address}",
            f"--remote=db:{self.name},{self.root},connections",
        )


# ovn-ctl's ports, but for the southbound database's: hosts' controllers have that one
NORTHBOUND = Database("nb", "OVN_Northbound", 6641, 6643, "NB_Global")
SOUTHBOUND = Database("sb", "OVN_Southbound", 6645, 6644, "SB_Global")
DATABASES = (NORTHBOUND, SOUTHBOUND)


def text(address: str) -> str:
    """The program that starts one of the servers: its first word is ``nb`` or ``sb``, the rest are options."""
    cases = "\n".join(
        f"{one.short}) ovn-appctl -t {one.runtime('ctl')} version >/dev/null 2>&1 && exit 0; shift\n"
        f'  exec {shlex.join(one.arguments(address))} "$@" {one.file} ;;'
        for one in DATABASES
    )
    return f"""\
#!/bin/sh
# Written by 'winlab host setup': starts a server of OVN's clustered databases, unless it runs.
umask 0002
mkdir -p /run/ovn
case "$1" in
{cases}
esac
"""


def northd_text(others: Sequence[str]) -> str:
    """The arguments of ovn-northd, which connects to the leader of each database, whichever host that is on.

    :param others: the addresses of the other hosts with databases.
    """
    words = []
    for one in DATABASES:
        # the socket last: northd sends no probes if it is the first, and would wait for a dead leader (ovn-northd.c)
        remotes = ",".join([*(f"ssl:{address}:{one.port}" for address in others), one.socket])
        words.append(f"--ovn{one.short}-db={remotes}")
    return " ".join([*words, f"--private-key={KEY}", f"--certificate={CERTIFICATE}", f"--ca-cert={AUTHORITY}"]) + "\n"


def drop_in_text(short: str) -> str:
    """The drop-in that has systemd start a server of a cluster instead of ovn-ctl's."""
    return f"""\
# Written by 'winlab host setup': this host's databases are part of a cluster.
[Service]
ExecStart=
ExecStart={PROGRAM} {short}
"""
