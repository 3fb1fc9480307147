"""What the first host of a site knows of all hosts' tunnels."""

from __future__ import annotations

import pytest

from winlab.design.plan.facts import HostFacts

FIRST = HostFacts(chassis="c1", tunnel_mtus={"c1": 8942, "c2": 1442}, tunnel_mtu=1442)


@pytest.mark.parametrize(
    ("known", "found", "hosts", "mtu"),
    [
        (HostFacts(), {"c1": 8942, "c2": 1442}, None, 1442),
        (FIRST, {"c3": 1342}, None, 1342),
        (FIRST, {"c2": 8942}, None, 8942),  # its network takes larger packets now
        (FIRST, {"c1": 1942}, {"c1"}, 1942),  # the other one has left
        (FIRST, {}, None, 1442),
        (FIRST, {"c1": 1400}, {"c1", "c2"}, 1400),
    ],
)
def test_the_mtu_is_that_of_the_smallest_tunnel(
    known: HostFacts, found: dict[str, int], hosts: set[str] | None, mtu: int
) -> None:
    assert known.with_tunnels(found, hosts).tunnel_mtu == mtu
