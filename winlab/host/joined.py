"""What a host's facts say about the site that it belongs to."""

from __future__ import annotations

from winlab.design.plan.facts import HostFacts


def has_others(facts: HostFacts) -> bool:
    """Whether other hosts have joined the site whose first host has these facts: they have a tunnel then."""
    return bool(getattr(facts, "tunnel_mtu", 0))


def site_of(facts: HostFacts) -> str:
    """The first host of the site that a host with these facts has joined: its chassis; empty if it joined none."""
    return str(getattr(facts, "joined", ""))
