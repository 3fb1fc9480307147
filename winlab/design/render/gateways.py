"""What the rows of a lab have besides at a site of several hypervisors: gateways that take over, and ways in. Pure.

It follows from the site as it is, not from the lab's plan: it changes when hypervisors are added or removed.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable

from winlab.design.plan.addresses import BLOCK
from winlab.design.render.topology import Policy, Topology

MOST = 3  # gateways of a router; each watches the others


def gateways(top: Topology, others: Iterable[str]) -> tuple[str, ...]:
    """The chassis that may be the gateway of the lab's router, the preferred one first.

    Labs that are on the first hypervisor alone have it there: they end with it, and their packets may be too large for
    tunnels. At a site of two, all labs have it there. OVN's controller that hears of no other gateway takes itself for
    cut off, and stops being one (ha_chassis_group_is_active in controller/ha-chassis.c): of two, neither would be
    left. Otherwise gateways are spread over labs. A further hypervisor moves few of them.

    :param others: the chassis of the site's further hypervisors.
    """
    every = {top.chassis, *others}
    if not top.spread or len(every) < MOST:
        return (top.chassis,)
    return tuple(sorted(every, key=lambda one: hashlib.sha256(f"{top.router}/{one}".encode()).digest())[:MOST])


def policies(top: Topology, others: Iterable[str]) -> tuple[Policy, ...]:
    """What the lab's router lets through besides: packets from and to the other hosts, whose firewalls decide.

    :param others: the chassis of the site's further hypervisors.
    """
    if not any(others):
        return ()
    inside, outside = top.router_ports
    network = ipaddress.IPv4Interface(outside.network).network
    blocks = f"{{{network[0]}/{_LENGTH}, {network[-BLOCK]}/{_LENGTH}}}"
    return (
        Policy(200, f'inport == "{inside.name}" && ip4.dst == {blocks}', "allow"),
        Policy(200, f'inport == "{outside.name}" && ip4.src == {blocks}', "allow"),
    )


_LENGTH = 32 - (BLOCK - 1).bit_length()  # of the prefix of a block
