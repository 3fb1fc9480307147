"""When kube-proxy on a Windows node counts as running: correctly, for the current network of HNS."""

from __future__ import annotations

from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.catalog import versions
from winlab.design.contract.call import Call, R
from winlab.design.render import kube_proxy
from winlab.steps.windows import node as windows_node

RUNS = {"service": "running", "command": kube_proxy.command(versions.get("1.36"))}


class Node:
    def __init__(self, proxy: dict[str, Any]) -> None:
        self.proxy = proxy

    def run(self, call: Call[R]) -> R:
        joined = {"service": "running", "joined": True}
        return answers.result(call, {"proxy": self.proxy, "kubelet": joined, "containerd": {"service": "running"}})


@pytest.mark.parametrize(
    ("proxy", "there"),
    [
        (RUNS, True),
        ({**RUNS, "stale": False}, True),
        ({**RUNS, "stale": True}, False),
        ({**RUNS, "service": "stopped"}, False),
        ({**RUNS, "command": "another"}, False),
    ],
)
def test_the_step_is_done(proxy: dict[str, Any], there: bool) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    steps = windows_node.steps(runs.run(plan, guest=Node(proxy)), plan.node("node-1"))
    assert runs.titled(steps, "proxy node-1").done() is there


@pytest.mark.parametrize(
    ("proxy", "says"),
    [
        (RUNS, "running"),
        ({**RUNS, "stale": True}, "stale"),
        ({"service": "stopped", "command": "", "stale": True}, "stopped"),
    ],
)
def test_a_kube_proxy_of_a_recreated_network_is_reported_to_repair(proxy: dict[str, Any], says: str) -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    found = windows_node.condition(runs.run(plan, guest=Node(proxy)), plan.node("node-1"))
    assert found.services == {"containerd": "running", "kubelet": "running", "kube-proxy": says}
