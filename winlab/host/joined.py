"""What a host's facts say about the site that it belongs to."""

from __future__ import annotations

from winlab.design.plan.facts import HostFacts


def southbound(facts: HostFacts) -> str:
    """Where the hosts of its site reach OVN's southbound database; empty: the site has one host."""
    return str(getattr(facts, "southbound", ""))


def first_host(facts: HostFacts) -> str:
    """The ssh address of the first host of the site that this host has joined; empty: it is the first itself."""
    return str(getattr(facts, "joined", ""))


def tunnel_mtu(facts: HostFacts) -> int:
    """The largest packet inside tunnels between hosts, in bytes; 0: there are none."""
    return getattr(facts, "tunnel_mtu", None) or 0
