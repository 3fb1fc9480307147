"""Addresses, MACs, uuids and domains: all derived from names, so that the same spec gives the same lab everywhere."""

from __future__ import annotations

import hashlib
import ipaddress
import uuid
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress

from winlab.errors import UsageError

NAMESPACE = uuid.UUID("6f1f6e0c-7a0e-5d0b-9c1e-3b0d6c1a57ab")  # winlab's own; any constant would do
BLOCK = 16  # external addresses are handed out in blocks of this size; a lab's router takes the first
DNS_ZONE = "winlab.internal"  # ICANN reserved .internal for private use
MAC = "52:54:00"  # QEMU's range, locally administered
OPEN_MAC = "52:54:01"  # routers of labs that may reach the host's own services: the host's firewall checks it
PROBER = 9  # OVN's source address for health checks of API servers
CONTROL_PLANE = 10  # the load balancer's, if there are several controllers
FIRST_CONTROLLER = 11  # places of workers: winlab.design.spec.pools


def make_uuid(*names: str) -> str:
    """A uuid that depends on the names alone."""
    return str(uuid.uuid5(NAMESPACE, "/".join(names)))


def domain(lab: str, node: str) -> str:
    """The name of a machine's domain. Neither part can have a dot, so two machines never have the same name.

    Names are for people: a machine is identified by its UUID. Earlier versions wrote a hyphen in place of the dot.
    """
    return f"winlab-{lab}.{node}"


def make_mac(*names: str) -> str:
    """A locally administered unicast MAC in QEMU's range that depends on the names alone."""
    digest = hashlib.sha256("/".join(("mac", *names)).encode()).digest()
    return ":".join((MAC, *(f"{byte:02x}" for byte in digest[:3])))


def zone(lab: str) -> str:
    """The DNS zone of a lab's nodes."""
    return f"{lab}.{DNS_ZONE}"


def router_mac(lab: str, reach: str) -> str:
    """The MAC of a lab's router on the external switch. Guests can't take it: the router alone sends with it."""
    made = make_mac(lab, "router", "external")
    return made.replace(MAC, OPEN_MAC, 1) if reach == "all" else made


def inner(cidr: str, offset: int) -> str:
    """The address *offset* places into the network."""
    return str(ipaddress.IPv4Network(cidr)[offset])


def window(cidr: str, lab: str) -> ipaddress.IPv4Network:
    """The part of a network with others' machines in it that a lab takes addresses from: a /24, or a whole smaller one.

    It is in the upper half, which its name decides: Docker hands addresses out from the lowest on.
    """
    network = ipaddress.IPv4Network(cidr)
    if network.prefixlen >= 24:
        return network
    every = list(network.subnets(new_prefix=24))
    upper = every[len(every) // 2 :]
    return upper[int.from_bytes(hashlib.sha256(f"window/{lab}".encode()).digest()[:4]) % len(upper)]


def blocks(external_cidr: str, taken: Iterable[str]) -> list[int]:
    """The numbers of the blocks that external addresses are in, sorted; without what is outside the network."""
    network = ipaddress.IPv4Network(external_cidr)
    first, inside = int(network.network_address), set()
    for address in taken:
        with suppress(ValueError):  # a router that is not winlab's may have addresses of IPv6
            if (found := ipaddress.IPv4Address(address)) in network:
                inside.add((int(found) - first) // BLOCK)
    return sorted(inside)


def last_block(external_cidr: str) -> int:
    """The number of the last block that is handed out; the first one has the number 1."""
    return ipaddress.IPv4Network(external_cidr).num_addresses // BLOCK - 2


def host_addresses(external_cidr: str) -> list[str]:
    """The external addresses of a site's further hosts: those of the first and the last block, which no lab gets.

    The subnet's first address is the first host's.
    """
    network = ipaddress.IPv4Network(external_cidr)
    places = (*range(2, BLOCK), *range(network.num_addresses - BLOCK, network.num_addresses - 1))
    return [str(network[place]) for place in places]


def external_block(
    external_cidr: str, lab: str, addresses: int, chosen: int | None, taken: Set[int] = frozenset()
) -> list[str]:
    """The external addresses of a lab: one for its router, then one a node.

    A lab takes one block of 16, or as many adjacent ones as it needs: those that its name decides, or the next that are
    free. ``create`` checks that they are. Block 0 holds the host's own address and the last one the broadcast address:
    neither is handed out.

    :param taken: the blocks that other labs use.

    :raises UsageError: *chosen* is outside the network, or the network is too small.
    """
    network = ipaddress.IPv4Network(external_cidr)
    need = -(-addresses // BLOCK)
    last = network.num_addresses // BLOCK - 1 - need  # the last block that a lab may start at
    if last < 1:
        raise UsageError(
            f"The external network {external_cidr} is too small for a lab of {addresses} addresses.",
            cure="Run 'winlab host setup --external-cidr' with a larger one, or use fewer nodes.",
        )
    if chosen is not None and chosen > last:
        raise UsageError(
            f"network.floating_block {chosen} is outside the external network {external_cidr}.",
            cure=f"Choose 1 to {last}, or leave it out.",
        )
    named = int.from_bytes(hashlib.sha256(f"block/{lab}".encode()).digest()[:4]) % last + 1
    every = [chosen] if chosen else [*range(named, last + 1), *range(1, named)]
    first = next((one for one in every if taken.isdisjoint(range(one, one + need))), every[0])
    return [str(network[first * BLOCK + index]) for index in range(addresses)]


def external_kept(
    external_cidr: str, router: str, nodes: Mapping[str, str], names: Iterable[str], chosen: int | None
) -> list[str] | None:
    """The external addresses of an existing lab: one for its router, then one for each of *names*.

    Nodes keep theirs; others take the first that are free, in the lab's block and those after it. None: the lab can't
    keep its block.

    :param router: the router's address.
    :param nodes: the addresses of the existing nodes.
    :param chosen: the block that the spec asks for.
    :raises UsageError: that many addresses don't fit after the first one.
    """
    network, names = ipaddress.IPv4Network(external_cidr), list(names)
    if ipaddress.IPv4Address(router) not in network:
        return None
    (first,) = blocks(external_cidr, [router])
    if chosen not in (None, first):
        return None
    kept = {name: nodes[name] for name in names if name in nodes}
    need = max([len(names) + 1, *(_offset(address, router) + 1 for address in kept.values())])
    every = external_block(external_cidr, "", need, first)
    free = (address for address in every[1:] if address not in kept.values())
    return [router, *(kept.get(name) or next(free) for name in names)]


def _offset(address: str, first: str) -> int:
    return int(ipaddress.IPv4Address(address)) - int(ipaddress.IPv4Address(first))
