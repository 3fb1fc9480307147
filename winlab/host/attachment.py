"""Bridges of this host that labs can be attached to: those of container networks and of libvirt's networks.

Such a bridge and a bridge of Open vSwitch are joined by a pair of virtual cards. OVN knows the latter by a name
(``ovn-bridge-mappings``), so that a lab's logical switch can have a port there (ovn-nb(5), localnet). Nothing passes
unless a lab has one. ``winlab host attach`` records the bridge in the host's facts; setup joins it again, such as at
boot.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import ipaddress
import json
import re
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from winlab.design.plan.existing import LocalBridge
from winlab.design.plan.facts import HostFacts
from winlab.design.render.topology import physical
from winlab.errors import NotFoundError
from winlab.events import Progress
from winlab.host import fabric
from winlab.host.changes import Record
from winlab.run import run

LINKS = Path("/sys/class/net")
NEIGHBOURS = Path("/proc/net/arp")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,15}")  # those that the kernel takes and OVN's mappings can have
COMPLETE = 0x2  # ATF_COM (include/uapi/linux/if_arp.h): the neighbour has answered
DISCARD = 9  # a port that nothing listens on: only the ARP request before the datagram counts
SET_CHECKSUM, ETHTOOL = 0x17, 0x8946  # ETHTOOL_STXCSUM, SIOCETHTOOL (include/uapi/linux/{ethtool,sockios}.h)


def require(name: str) -> None:
    """Check that this is a bridge of Linux's, not of Open vSwitch.

    :raises NotFoundError: it is not.
    """
    if not NAME.fullmatch(name) or not (LINKS / name / "bridge").is_dir():
        raise NotFoundError(
            f"This host has no Linux bridge '{name}'.",
            why="A cluster's container network has one, as has a network of libvirt's.",
            cure="'winlab join --check --attachment attached' names the one of a cluster.",
        )


def ensure(known: HostFacts, record: Record, progress: Progress) -> None:
    """Join the recorded bridges to Open vSwitch. One that is gone is left out: its network was removed."""
    for name in known.attached:
        if (LINKS / name / "bridge").is_dir():
            _ensure(name, known, record, progress)
        else:
            progress.say(f"the bridge {name}, to which labs were attached, is gone")


def _ensure(name: str, known: HostFacts, record: Record, progress: Progress) -> None:
    bridge, inside, outside = _names(name)
    fabric.ensure_bridge(bridge, known.datapath, (), record, progress)
    if trouble(name):
        progress.say(f"joining the bridge {name} to Open vSwitch")
        run(["ip", "link", "del", outside], check=False, timeout=20)
        run(["ip", "link", "add", outside, "type", "veth", "peer", "name", inside], timeout=20)
        # on the userspace datapath no hardware computes them later
        _compute_checksums(outside)
        run(["ip", "link", "set", outside, "master", name, "up"], timeout=20)
        run(["ip", "link", "set", inside, "up"], timeout=20)
        # Open vSwitch may still have the port of a card that was removed
        fabric.vsctl("--if-exists", "del-port", bridge, inside)
    fabric.vsctl("--may-exist", "add-port", bridge, inside)
    fabric.map_bridge(physical(name), bridge)


def undo(name: str, record: Record, progress: Progress) -> None:
    """Separate a bridge from Open vSwitch again; safe to repeat."""
    bridge, _, outside = _names(name)
    progress.say(f"separating the bridge {name} from Open vSwitch")
    fabric.unmap_bridge(physical(name), bridge)
    run(["ip", "link", "del", outside], check=False, timeout=20)
    if bridge in record.changes.bridges:
        fabric.vsctl("--if-exists", "del-br", bridge)
        record.changes.bridges = [one for one in record.changes.bridges if one != bridge]
        record.save()


def trouble(name: str) -> str:
    """Why labs can't be attached to a bridge, as a sentence; empty if they can. Any user may ask."""
    outside = _names(name)[2]
    if not (LINKS / name / "bridge").is_dir():
        return f"This host has no bridge '{name}' any more"
    port = LINKS / outside / "brport" / "bridge"
    if not port.exists() or port.resolve().name != name:
        return f"The bridge '{name}' is not joined to Open vSwitch"
    return ""


def find(addresses: Iterable[str]) -> LocalBridge | None:
    """The Linux bridge of this host in whose network all these addresses are; None if there is none."""
    wanted = [ipaddress.IPv4Address(one) for one in addresses]
    links = json.loads(run(["ip", "-j", "-4", "addr", "show", "type", "bridge"], timeout=20).stdout or "[]")
    for link in links:
        for row in link.get("addr_info", []):
            own = ipaddress.IPv4Interface(f"{row['local']}/{row['prefixlen']}")
            if wanted and all(one in own.network for one in wanted) and own.ip not in wanted:
                return LocalBridge(str(link["ifname"]), str(own.network), str(own.ip))
    return None


def answered(addresses: Iterable[str], bridge: str) -> list[str]:
    """Which addresses someone on the bridge has: asks by ARP, and waits a second for answers."""
    wanted = list(addresses)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for address in wanted:
            with suppress(OSError):
                probe.sendto(b"", (address, DISCARD))
        probe.settimeout(1.0)
        with suppress(OSError):
            probe.recv(1)  # nothing comes
    rows = [line.split() for line in NEIGHBOURS.read_text(encoding="ascii").splitlines()[1:]]
    there = {row[0] for row in rows if len(row) > 5 and row[5] == bridge and int(row[2], 16) & COMPLETE}
    return [address for address in wanted if address in there]


def _names(name: str) -> tuple[str, str, str]:
    """The bridge of Open vSwitch, and the two ends of the pair of cards: in it, and in the Linux bridge."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"wlb-{digest}", f"wli-{digest}", f"wlo-{digest}"


def _compute_checksums(link: str) -> None:
    """Have the kernel compute checksums before packets go out of a link."""
    off = array.array("B", struct.pack("II", SET_CHECKSUM, 0))
    request = struct.pack("16sP", link.encode(), off.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, ETHTOOL, request)
