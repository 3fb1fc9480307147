"""When a Windows node's features count as there: those of its own network profile, seen to their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import answers
import plans
import pytest

from winlab.adapters.guests.contract import Call, R
from winlab.engine.durations import Durations
from winlab.lab_folder import LabState
from winlab.steps import Context, linux_nodes, windows_nodes

BGP = "Containers,RSAT-RemoteAccess-PowerShell,RemoteAccess,Routing"


@pytest.mark.parametrize(
    ("profile", "done", "pending", "there"),
    [
        ("calico-vxlan", "Containers", False, True),
        ("calico-vxlan", BGP, False, True),
        ("calico-bgp", BGP, False, True),
        ("calico-bgp", "Containers", False, False),  # a golden image made for another profile
        ("calico-vxlan", "", False, False),  # ended between the restart and the firewall's rules
        ("calico-vxlan", "Containers", True, False),
        ("calico-vxlan", None, False, False),  # by the scripts of an older winlab's CD
    ],
)
def test_features(monkeypatch: pytest.MonkeyPatch, profile: str, done: str | None, pending: bool, there: bool) -> None:
    class Node:
        def run(self, call: Call[R]) -> R:
            told = {} if done is None else {"features_set": done}
            return answers.result(call, {"containers_feature": "installed", "restart_pending": pending, **told})

    @contextmanager
    def connected(*_: Any) -> Iterator[Node]:
        yield Node()

    monkeypatch.setattr(linux_nodes, "connected", connected)
    plan = plans.make(plans.KVM, "1-1-1", f"network.cni={profile}")
    context = Context(plan, LabState("lab"), cast(Any, None), cast(Any, None), None, 1.0, Durations("tcg"))
    steps = {step.name: step for step in windows_nodes.steps(context, plan.node("node-1"))}
    assert steps["features node-1"].done() is there
