"""A Windows node is asked once for all its steps, until one of them acts or time has passed."""

from __future__ import annotations

import answers
import plans
import pytest
import runs

from winlab.design.contract.call import Call, R
from winlab.engine.step import Step
from winlab.events import Quiet
from winlab.steps.windows import node as windows_node


class Node:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.tell = None

    def run(self, call: Call[R], _heard: object = None) -> R:
        self.asked.append(call.script)
        return answers.result(call, {"containerd": {"service": "running"}} if call.script == "status" else {})


def _steps(node: Node) -> list[Step]:
    plan = plans.make(plans.KVM, "1-1-1")
    return windows_node.steps(runs.run(plan, guest=node), plan.node("node-1"))


def test_all_steps_look_at_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    node, now = Node(), 1000.0
    monkeypatch.setattr("winlab.steps.windows.node.time.monotonic", lambda: now)
    steps = _steps(node)
    for step in steps:
        step.done()
    assert node.asked == ["status"]
    now += windows_node.FRESH + 1
    runs.titled(steps, "kubelet node-1").done()
    assert node.asked == ["status", "status"]


def test_a_step_that_acted_is_checked_again() -> None:
    node = Node()
    steps = _steps(node)
    containerd = runs.titled(steps, "containerd node-1")
    containerd.done()
    containerd.run(Quiet())
    containerd.done()
    runs.titled(steps, "binaries node-1").done()
    assert node.asked == ["status", "containerd", "status"]
