"""When a Windows node's features count as installed: those of its own network profile, completely."""

from __future__ import annotations

import answers
import plans
import pytest
import runs

from winlab.design.contract.call import Call, R
from winlab.steps.windows import node as windows_node

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

    plan = plans.make(plans.KVM, "1-1-1", f"network.cni={profile}")
    steps = windows_node.steps(runs.run(plan, guest=Node()), plan.node("node-1"))
    assert runs.titled(steps, "features node-1").done() is there
