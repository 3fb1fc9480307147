"""Labs that an external cluster reaches through this host without translation: routes, and what firewalls let through.

``winlab host route`` records a lab's network, its router and the cluster's networks in the host's facts. Setup sets
them up again, such as at boot.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping

from winlab import settings
from winlab.design.plan.facts import HostFacts, Way
from winlab.errors import ConflictError, NotFoundError, UsageError
from winlab.events import Progress
from winlab.host import subnet
from winlab.host.changes import Firewall
from winlab.run import run
from winlab.settings import BRIDGE

WIDEST = 8  # bits of the prefix of the largest network that may be let through


def rules(ways: Mapping[str, Way]) -> str:
    """Rules of winlab's own table, one for each network and direction."""
    return "".join(
        f'\t\tiifname "{BRIDGE}" ip saddr {lab} ip daddr {network} counter accept comment "a cluster of {lab}"\n'
        f'\t\toifname "{BRIDGE}" ip saddr {network} ip daddr {lab} counter accept comment "a cluster of {lab}"\n'
        for lab, network in _pairs(ways)
    )


def _pairs(ways: Mapping[str, Way]) -> list[tuple[str, str]]:
    """A lab's network and one of its cluster's, as nft lists them: a single address has no prefix."""
    return [(lab, network.removesuffix("/32")) for lab, way in ways.items() for network in way.networks]


def command(lab: str, router: str, networks: Iterable[str]) -> str:
    """The command by which root has this host carry a lab's packets from and to these networks."""
    return f"sudo winlab host route {lab} --via {router} " + " ".join(f"--for {one}" for one in networks)


def check(lab: str, way: Way, known: HostFacts) -> None:
    """Check that this host can route a lab's network.

    :raises UsageError: an address or network is not usable.
    :raises ConflictError: this host reaches something else by an overlapping network.
    """
    try:
        network, router = ipaddress.IPv4Network(lab), ipaddress.IPv4Address(way.router)
        widest = min((ipaddress.IPv4Network(one).prefixlen for one in way.networks), default=0)
    except ValueError as error:
        raise UsageError(
            "This is not a route to a lab.", why=f"{error}.", cure="Use the command that 'winlab join --check' prints."
        ) from error
    if router not in known.external_network or not network.is_private or min(widest, network.prefixlen) < WIDEST:
        raise UsageError(
            f"The lab's network {lab} can't be routed by {way.router}.",
            why=f"The router must be in {known.external_cidr}, the lab's network private, and the cluster's networks "
            f"no larger than /{WIDEST}.",
            cure="Use the command that 'winlab join --check' prints.",
        )
    if other := subnet.collision(lab, subnet.used_here(BRIDGE)):
        raise ConflictError(
            f"This host already reaches {other.network} by '{other.device}'.",
            why=f"It has: {other.how}. The lab's network {lab} overlaps it.",
            cure="Make the lab with another one: --set network.cidr=.",
        )


def require(lab: str, known: HostFacts) -> Way:
    """The recorded way of a lab's network.

    :raises NotFoundError: there is none.
    """
    if lab not in known.ways:
        listed = ", ".join(known.ways) or "none"
        raise NotFoundError(f"This host has no route to a lab's network {lab}.", why=f"It has: {listed}.")
    return known.ways[lab]


def ensure(known: HostFacts, progress: Progress) -> None:
    """Set the recorded routes."""
    for lab, way in known.ways.items():
        own = _own(way)
        if _seen(lab) != (way.router, own):
            progress.say(f"the route to {lab} by {way.router}")
            source = ["src", own] if own else []
            run(["ip", "route", "replace", lab, "via", way.router, "dev", BRIDGE, *source], timeout=20)


def remove(lab: str) -> None:
    """Remove the route to a lab's network, if there is one."""
    if _seen(lab)[0]:
        run(["ip", "route", "del", lab, "dev", BRIDGE], check=False, timeout=20)


def trouble(lab: str, router: str, nodes: Iterable[str], known: HostFacts) -> str:
    """Why this host does not carry packets between a lab and its cluster, as a sentence; empty if it does. Any user.

    :param nodes: the addresses of the cluster's nodes.
    """
    if not settings.network_is_here():
        return ""
    if _seen(lab)[0] != router:
        return f"This host has no route to {lab} by {router}"
    networks = [ipaddress.IPv4Network(one) for one in known.ways[lab].networks] if lab in known.ways else []
    closed = [one for one in nodes if not any(ipaddress.IPv4Address(one) in network for network in networks)]
    return f"This host's firewall does not let through what {', '.join(closed)} send to {lab}" if closed else ""


def _seen(lab: str) -> tuple[str, str]:
    """The router of the route to exactly this network, and its source address; empty if there is none."""
    said = run(["ip", "-j", "route", "show", "exact", lab, "dev", BRIDGE], check=False, timeout=20).stdout
    return next(
        ((str(row.get("gateway", "")), str(row.get("prefsrc", ""))) for row in json.loads(said or "[]")), ("", "")
    )


def _own(way: Way) -> str:
    """This host's own address in the cluster's networks; empty if it has none, because it is not a node of the cluster.

    What its API server sends to the lab must come from there: the lab's router translates answers to others.
    """
    said = run(["ip", "-j", "-4", "address", "show"], timeout=20).stdout
    here = [ipaddress.IPv4Address(one["local"]) for link in json.loads(said or "[]") for one in link["addr_info"]]
    networks = map(ipaddress.IPv4Network, way.networks)
    return next((str(one) for network in networks for one in here if one in network), "")


def enter(ways: Mapping[str, Way], firewall: Firewall, chain: tuple[str, str] | None, progress: Progress) -> None:
    """Let the clusters' packets through another firewall of this host, too.

    :param chain: iptables' program, and the chain that *firewall* has for others' rules; None: it has none.
    """
    for lab, network in _pairs(ways):
        if chain is not None:
            program, name = chain
            rule = _rule(lab, network)
            if run([program, "-w", "10", "-C", name, *rule], check=False, timeout=30).returncode != 0:
                run([program, "-w", "10", "-I", name, *rule], timeout=30)
        elif firewall == "ufw":
            run(["ufw", "route", *_allowance(lab, network), "comment", "winlab"], timeout=60)
        else:
            progress.say(f"firewalld: forward from {network} to {lab} yourself, by a policy with egress zone 'winlab'")


def withdraw(ways: Mapping[str, Way], firewall: Firewall, chain: tuple[str, str] | None) -> None:
    """Remove what :func:`enter` added."""
    for lab, network in _pairs(ways):
        if chain is not None:
            program, name = chain
            while run([program, "-w", "10", "-D", name, *_rule(lab, network)], check=False, timeout=30).returncode == 0:
                pass
        elif firewall == "ufw":
            run(["ufw", "route", "delete", *_allowance(lab, network)], check=False, timeout=60)


def _rule(lab: str, network: str) -> tuple[str, ...]:
    return ("-o", BRIDGE, "-s", network, "-d", lab, "-m", "comment", "--comment", "winlab", "-j", "ACCEPT")


def _allowance(lab: str, network: str) -> tuple[str, ...]:
    return ("allow", "out", "on", BRIDGE, "from", network, "to", lab)
