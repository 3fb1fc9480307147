"""What the host has that a lab could leave behind, to be compared before and after."""

from __future__ import annotations

import json
import re
import subprocess  # noqa: TID251 - looks at the host as people do
from collections.abc import Collection
from pathlib import Path

POOL = Path("/var/lib/winlab/pool")
NVRAM = Path("/var/lib/libvirt/qemu/nvram")
NORTHBOUND = "--db=unix:/run/winlab/ovnnb.sock"
TABLES = (
    "Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Policy",
    "Logical_Router_Static_Route", "NAT", "Load_Balancer", "DHCP_Options", "DNS", "Gateway_Chassis",
)  # fmt: skip
NAMELESS = ("links", "ports", "addresses", "mounts", "firewall", "/tmp")  # things without an owner
Traces = dict[str, frozenset[str]]


def traces() -> Traces:
    """The lines of each kind. Images stay in the pool: they are the cache that makes the next lab quick.

    The pair of patch ports between br-int and br-winlab is ovn-controller's and the host's: it stands while any machine
    runs, and goes a while after the last one.
    """
    rows = (line for table in TABLES for line in _rows(table))
    return {
        "domains": _lines("virsh", "-c", "qemu:///system", "list", "--all", "--name"),
        "volumes": frozenset(path.name for path in POOL.iterdir() if not path.name.startswith("base-")),
        "nvram": frozenset(path.name for path in NVRAM.iterdir()) if NVRAM.is_dir() else frozenset(),
        "links": frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        "rows": frozenset(rows),
        "ports": _lines("ovs-vsctl", "--bare", "--columns=name", "find", "Interface", "type!=patch"),
        "routes": _lines("ip", "route"),
        "addresses": frozenset(map(_address, _lines("ip", "-brief", "address"))),
        "firewall": _lines("nft", "--stateless", "list", "ruleset"),
        "mounts": frozenset(filter(_is_ours, Path("/proc/self/mounts").read_text().splitlines())),
        "uploads": frozenset(path.name for path in POOL.iterdir() if path.name.endswith(".claim")),
    }


def _is_ours(mount: str) -> bool:
    """Whether winlab may have made a mount: others come and go with network namespaces and logins."""
    return not mount.split()[1].startswith(("/run/netns", "/run/credentials/", "/run/user/"))


def _address(line: str) -> str:
    """Without the state of the link, which says whether it is in use now."""
    words = line.split()
    return " ".join([words[0], *words[2:]])


def _lines(*command: str) -> frozenset[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return frozenset(line.strip() for line in done.stdout.splitlines() if line.strip())


def _rows(table: str) -> list[str]:
    words = ["ovn-nbctl", NORTHBOUND, "--format=json", "--data=json", "--columns=_uuid,external_ids", "list", table]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout) if done.stdout.strip() else {"data": []}
    return [f"{table} {uuid[1]} {json.dumps(ids[1])}" for uuid, ids in told["data"]]


def left(before: Traces, after: Traces, *labs: str) -> list[str]:
    """What differs, a line each: ``+`` is there now and was not before, ``-`` is gone.

    What names other labs than these does not count: people may change theirs meanwhile. While there are any, what does
    not say whose it is (:data:`NAMELESS`) does not count, either.
    """
    others = (_labs(before) | _labs(after)) - {*labs}
    lines = []
    for kind in before:
        for sign, rows in (("+", after[kind] - before[kind]), ("-", before[kind] - after[kind])):
            lines += [f"{sign} {kind}: {row}" for row in sorted(rows) if not _is_of(kind, row, others)]
    return lines


def _labs(now: Traces) -> set[str]:
    """All labs, except those in which golden images are made: a lab brings these with it."""
    labs = {match[1] for row in now.get("rows", ()) if (match := re.search(r'\["winlab", "([^"]+)"\]', row))}
    # a snapshot's volumes begin with LAB@, the disks of an imported one with LAB--
    labs |= {re.split("[.@]|--", row)[0] for row in now.get("volumes", ()) if row.count(".") >= 2}
    return {name for name in labs if not name.startswith("golden-")}


def _is_of(kind: str, row: str, others: Collection[str]) -> bool:
    if others and (kind in NAMELESS or row.endswith(" []")):
        return True
    return any(re.search(rf'(^|winlab-|"){re.escape(other)}([-.@"]|$)', row) for other in others)


if __name__ == "__main__":
    print(json.dumps({kind: sorted(rows) for kind, rows in traces().items()}))
