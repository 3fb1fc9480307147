"""Choosing the external subnet: one that nothing on the host uses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from winlab.design.plan.facts import DEFAULT_CIDR
from winlab.design.spec.networks import is_ordinary
from winlab.errors import ConflictError, UsageError
from winlab.run import run

# Private ranges that home routers, Docker (172.17 to 172.28), libvirt (192.168.122), Kubernetes (10.96, 10.244) and
# the usual cloud networks leave alone.
CANDIDATES = (
    DEFAULT_CIDR,
    "172.30.240.0/20",
    "172.29.240.0/20",
    "10.231.240.0/20",
    "10.213.240.0/20",
    "192.168.240.0/20",
)

# A route this wide is a default route in disguise (a VPN's 0.0.0.0/1), not a network in use.
WIDE = 7


@dataclass(frozen=True)
class Used:
    """A network that the host already reaches, and how; shown to the user unchanged."""

    network: IPv4Network
    device: str
    how: str


def used_networks(
    routes: Iterable[Mapping[str, Any]], links: Iterable[Mapping[str, Any]], own_bridge: str
) -> list[Used]:
    """The IPv4 networks in ``ip -j route show table all`` and ``ip -j addr``, except our bridge's own."""
    used = []
    for route in routes:
        device = str(route.get("dev", route.get("type", "")))
        network = _network(str(route.get("dst", "")))
        if network is not None and network.prefixlen > WIDE and device != own_bridge:
            table = str(route.get("table", "main"))
            used.append(Used(network, device, f"route {route['dst']} dev {device} table {table}"))
    for link in links:
        device = str(link.get("ifname", ""))
        for address in link.get("addr_info", []):
            if address.get("family") == "inet" and device != own_bridge:
                text = f"{address['local']}/{address['prefixlen']}"
                network = _network(text)
                if network is not None:
                    used.append(Used(network, device, f"address {text} dev {device}"))
    return used


def used_here(own_bridge: str) -> list[Used]:
    """The IPv4 networks that this host uses now, except those of *own_bridge*."""
    routes = json.loads(run(["ip", "-j", "route", "show", "table", "all"], timeout=20).stdout or "[]")
    links = json.loads(run(["ip", "-j", "addr"], timeout=20).stdout or "[]")
    return used_networks(routes, links, own_bridge)


def _network(text: str) -> IPv4Network | None:
    try:
        return IPv4Network(text, strict=False)
    except ValueError:
        return None  # "default", or IPv6


def collision(cidr: str, used: Iterable[Used]) -> Used | None:
    """The first used network that shares an address with *cidr*."""
    network = IPv4Network(cidr)
    return next((item for item in used if item.network.overlaps(network)), None)


def check_cidr(text: str) -> str:
    """The requested subnet, in its usual form.

    :raises UsageError: it is not a private IPv4 network with 256 to 65536 addresses.
    """
    try:
        network = IPv4Network(text)
    except ValueError as error:
        raise UsageError(
            f"'{text}' is not an IPv4 subnet.", why=str(error), cure=f"Give one such as {DEFAULT_CIDR}."
        ) from error
    if not 16 <= network.prefixlen <= 24 or not is_ordinary(network):
        raise UsageError(
            f"'{text}' can't be the external subnet.",
            why="It must be a /16 to /24 of ordinary addresses.",
            cure=f"Give one such as {DEFAULT_CIDR}.",
        )
    return str(network)


def choose(asked: str | None, recorded: str | None, used: Iterable[Used]) -> str:
    """The external subnet: the recorded one, otherwise the requested one, otherwise the first free candidate.

    :raises ConflictError: the requested one (or every candidate) is in use, or another is already recorded.
    """
    used = list(used)
    if asked is not None:
        asked = check_cidr(asked)
    if recorded is not None:
        if asked is not None and asked != recorded:
            raise ConflictError(
                f"The external subnet of this host is already {recorded}.",
                why="It does not change once chosen, because labs have addresses in it.",
                cure=f"Run 'sudo winlab host teardown', then 'sudo winlab host setup --external-cidr {asked}'.",
            )
        return recorded
    if asked is not None:
        conflict = collision(asked, used)
        if conflict is not None:
            raise ConflictError(
                f"The subnet {asked} is in use on interface '{conflict.device}'.",
                why=f"This host has: {conflict.how}",
                cure="Give another --external-cidr, or leave it out: then a free one is chosen.",
            )
        return asked
    for candidate in CANDIDATES:
        if collision(candidate, used) is None:
            return candidate
    raise ConflictError(
        "No subnet is free for the labs' external network.",
        why="; ".join(f"{cidr}: {conflict.how}" for cidr in CANDIDATES if (conflict := collision(cidr, used))),
        cure="Give a free one with --external-cidr.",
    )
