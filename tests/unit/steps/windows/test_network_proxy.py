"""containerd on Windows has the lab's proxy: compared by a digest, set once, taken back, and named where it differs."""

from __future__ import annotations

import hashlib
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.contract import on_windows
from winlab.design.contract.call import Call
from winlab.design.plan.model import Plan
from winlab.design.render.windows import WindowsFiles
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.steps.states import CONTAINERD
from winlab.steps.windows import node as windows_node

SECRET = "http://me:SECRET@proxy.example:3128"
WITH, WITHOUT = (f"network.proxy.http={SECRET}",), ()


class Node:
    """A member with everything, whose containerd has these variables; None: an older winlab's CD does not say."""

    def __init__(self, plan: Plan, environment: str | None) -> None:
        call = WindowsFiles(plan, plan.windows_nodes()[0]).containerd()
        service = {
            "service": "running",
            "sha256": "a",
            "config_sha256": hashlib.sha256(call.config.encode()).hexdigest(),
            "environment_sha256": environment,
        }
        self.facts = {"containerd": service, "kubelet": {"service": "running", "joined": True}}
        self.asked: list[Call[Any]] = []
        self.tell = None

    def run(self, call: Call[Any], *_: object) -> Any:
        self.asked.append(call)
        return answers.result(call, self.facts if call.script == "status" else {})


def digest(plan: Plan) -> str:
    lines = WindowsFiles(plan, plan.windows_nodes()[0]).containerd().environment
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


def looked_at(changes: tuple[str, ...], environment: str | None) -> tuple[bool, list[str]]:
    """Whether the step is done, and what repair names."""
    plan = plans.make(plans.KVM, "1-1-1", *changes)
    there = Node(plan, environment)
    run, node = runs.run(plan, guest=there), plan.windows_nodes()[0]
    step = runs.titled(windows_node.steps(run, node), "containerd node-1")
    found = windows_node.condition(run, node).changed
    assert all(kind is CONTAINERD for kind in found.values())
    return step.done(), list(found)


@pytest.mark.parametrize("changes", [WITH, WITHOUT])
def test_a_node_that_has_it_is_done(changes: tuple[str, ...]) -> None:
    assert looked_at(changes, digest(plans.make(plans.KVM, "1-1-1", *changes))) == (True, [])


def test_an_older_cd_is_fine_without_a_proxy() -> None:
    assert looked_at(WITHOUT, None) == (True, [])


@pytest.mark.parametrize(("changes", "environment"), [(WITH, ""), (WITH, None), (WITH, "0" * 64), (WITHOUT, "0" * 64)])
def test_another_one_is_noticed(changes: tuple[str, ...], environment: str | None) -> None:
    assert looked_at(changes, environment) == (False, ["containerd's proxy"])


def test_it_is_set() -> None:
    plan = plans.make(plans.KVM, "1-1-1", *WITH)
    there = Node(plan, "")
    run, node = runs.run(plan, guest=there), plan.windows_nodes()[0]
    runs.titled(windows_node.steps(run, node), "containerd node-1").run(Quiet())
    call = there.asked[-1]
    assert isinstance(call, on_windows.Containerd)
    assert call.settings("windows")["environment"][0] == f"HTTP_PROXY={SECRET}"


def test_an_older_cd_is_named() -> None:
    plan = plans.make(plans.KVM, "1-1-1", *WITH)
    there = Node(plan, None)
    run, node = runs.run(plan, guest=there), plan.windows_nodes()[0]
    with pytest.raises(GuestError, match=r"can't be given the proxy") as caught:
        runs.titled(windows_node.steps(run, node), "containerd node-1").run(Quiet())
    assert "winlab node rebuild node-1" in caught.value.cure
    assert "SECRET" not in f"{caught.value.what}{caught.value.why}"
    assert [call.script for call in there.asked] == ["status"]
