"""What the servers of OVN's databases know of their cluster (RAFT), and what this host's copies are."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from winlab.host import databases_program as program
from winlab.host.databases_program import DATABASES, Database
from winlab.run import run

PATIENCE = 40  # seconds until a cluster has a leader
LAG = 20  # entries of the log that may be on their way
_SERVER = re.compile(r"^ +([0-9a-f]{4}) \([0-9a-f]{4} at ssl:([0-9.]+):\d+\)(.*)$", re.MULTILINE)
_LEADER = re.compile(r"^Leader: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Status:
    """What the server of a database knows of its cluster: the addresses of all members, and of the leader.

    There are no members while it waits for a cluster. ``behind`` are those that lack changes; only the leader knows.
    """

    members: tuple[str, ...]
    leader: str = ""
    behind: tuple[str, ...] = ()


def parse_status(text: str) -> Status:
    """Read what ``ovn-appctl cluster/status`` prints (ovsdb/raft.c of Open vSwitch)."""
    servers = _SERVER.findall(text)
    found = _LEADER.search(text)
    leader = next((at for sid, at, rest in servers if found and found[1] == ("self" if "(self)" in rest else sid)), "")
    # only a leader prints them
    reached = {at: int(index[1]) for _, at, rest in servers if (index := re.search(r"match_index=(\d+)", rest))}
    behind = tuple(at for at, index in reached.items() if index + LAG < max(reached.values()))
    return Status(tuple(at for _, at, _ in servers), leader, behind)


def status(one: Database) -> Status | None:
    """What this host's server of a database knows of its cluster; None: it is part of none, or does not run."""
    words = ["ovn-appctl", "--timeout=10", "-t", one.runtime("ctl"), "cluster/status", one.name]
    said = run(words, check=False, timeout=20)
    return parse_status(said.stdout) if said.returncode == 0 else None


def are_here() -> bool:
    """Whether this host's databases are part of a cluster, or wait for one."""
    return program.PROGRAM.exists()


def are_recovered() -> bool:
    """Whether this host's databases were part of a cluster, and are on it alone since a recovery. It still listens."""
    return are_here() and all(one.file.exists() and not is_clustered(one) for one in DATABASES)


def is_waiting() -> bool:
    """Whether this host's servers run, but have not found a cluster yet."""
    seen = [status(one) for one in DATABASES]
    return any(one is not None and not one.members for one in seen)


def is_clustered(one: Database) -> bool:
    """Whether this host's copy of a database is one of a cluster, or waits for one."""
    return run(["ovsdb-tool", "db-is-clustered", str(one.file)], check=False, timeout=20).returncode == 0


def cluster_of(one: Database) -> str:
    """The id of the cluster that this host's copy of a database is part of; empty if it is part of none, or waits."""
    said = run(["ovsdb-tool", "db-cid", str(one.file)], check=False, timeout=20)
    return said.stdout.strip() if said.returncode == 0 else ""


def clusters() -> dict[str, str]:
    """The ids of the clusters of both databases; empty while one host has them."""
    return {one.short: cluster_of(one) for one in DATABASES} if are_here() else {}


def listens(address: str, port: int = program.NORTHBOUND.raft) -> bool:
    """Whether a host's server of a database listens for those of other hosts."""
    try:
        socket.create_connection((address, port), 3).close()
    except OSError:
        return False
    return True


def is_usable(seconds: int = PATIENCE) -> bool:
    """Wait until both databases can be read and changed here; False if they can't be within *seconds*."""
    words = ["ovsdb-client", "-t", str(seconds), "wait"]
    limit = seconds + 10
    return all(
        run([*words, one.socket, one.name, "connected"], check=False, timeout=limit).returncode == 0
        for one in DATABASES
    )


def count_members(one: Database) -> int:
    """How many hosts a database is on, as far as this host's server knows; 0: it does not know."""
    seen = status(one)
    return len(seen.members) if seen else 0
