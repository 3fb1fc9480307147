"""The bridges of this host that containers and virtual machines are on, by their names; and those that lead further."""

from __future__ import annotations

import re
from pathlib import Path

from winlab.settings import BRIDGE

# Docker (docker0, docker_gwbridge, br-<12 digits>), Podman, CNI plugins, libvirt, LXD, Incus, LXC
LOCAL = ("docker*", "br-*", "podman*", "cni*", "virbr*", "lxdbr*", "incusbr*", "lxcbr*")
ROUTES = Path("/proc/net/route")
LINKS = Path("/sys/class/net")
GATEWAY = 0x2  # RTF_GATEWAY (include/uapi/linux/route.h)


def leading_on(routes: Path = ROUTES, links: Path = LINKS) -> list[str]:
    """The interfaces that are named like a local bridge, but lead to other networks: an uplink br-lan, say.

    They have a route by a gateway, or a network card is plugged into them, be it by a bond or a VLAN.
    """
    plugged = {port.parent.parent.name for port in links.glob("*/brif/*") if _is_card(links / port.name)}
    return sorted(name for name in _with_gateway(routes) | plugged if _is_local(name))


def uplinks(routes: Path = ROUTES, links: Path = LINKS) -> dict[str, int]:
    """The largest packet in bytes (MTU) of each interface with a route by a gateway, as far as it is known."""
    texts = {name: links / name / "mtu" for name in sorted(_with_gateway(routes)) if name != BRIDGE}
    return {name: int(path.read_text(encoding="ascii")) for name, path in texts.items() if path.is_file()}


def _is_card(port: Path) -> bool:
    return (port / "device").exists() or any(port.glob("lower_*"))


def _with_gateway(routes: Path) -> set[str]:
    try:
        rows = [line.split() for line in routes.read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return set()
    return {row[0] for row in rows if len(row) > 3 and int(row[3], 16) & GATEWAY}


def _is_local(name: str) -> bool:
    named = any(name.startswith(pattern.rstrip("*")) for pattern in LOCAL)
    return named and name != BRIDGE and re.fullmatch(r"[\w.-]+", name) is not None
