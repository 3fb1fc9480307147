"""The tunnels of a site's first host, as ``winlab host setup`` leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest

from winlab.design.plan.facts import HostFacts
from winlab.events import Quiet
from winlab.host import setup
from winlab.host.changes import Record
from winlab.host.site import tunnels

ADDRESS = "203.0.113.1"
FIRST = HostFacts(chassis="c1", southbound="ssl:198.51.100.1:6642")


@pytest.mark.parametrize(
    ("known", "wanted", "used", "mtu"),
    [
        (HostFacts(), "", [], None),
        (HostFacts(), ADDRESS, [ADDRESS], None),  # no other host has joined
        (FIRST.model_copy(update={"tunnel_mtu": 1400}), "", [], 1400),
        (FIRST.model_copy(update={"tunnel_mtu": 1400}), ADDRESS, [ADDRESS], 1400),
        (FIRST.model_copy(update={"tunnel_mtu": 8942}), ADDRESS, [ADDRESS], 1442),
        (FIRST, "", ["203.0.113.9"], 1442),  # the facts lost it
    ],
)
def test_the_mtu_is_that_of_the_smallest_tunnel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, known: HostFacts, wanted: str, used: list[str], mtu: int | None
) -> None:
    asked: list[str] = []

    def ensure(address: str, *_more: object) -> int:
        asked.append(address)
        return 1442

    monkeypatch.setattr(tunnels, "ensure", ensure)
    monkeypatch.setattr(tunnels, "recorded", lambda: "203.0.113.9")
    found = setup._with_tunnels(known, wanted, Record(tmp_path / "changes.yaml"), Quiet())
    assert (asked, found.tunnel_mtu) == (used, mtu)
