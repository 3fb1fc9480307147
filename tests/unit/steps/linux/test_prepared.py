"""A Linux node is prepared if its files match those rendered now, not because it was prepared once."""

from __future__ import annotations

import hashlib
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.design.contract import on_linux
from winlab.design.contract.call import Call
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render.linux import LinuxFiles
from winlab.engine.run import Run
from winlab.errors import GuestError
from winlab.steps.linux import node as linux_node
from winlab.steps.linux.system import LinuxSteps
from winlab.steps.states import PREPARED

CONFIG = "/etc/containerd/config.toml"


class Node:
    """A node that has what it was given, but for what a test changes."""

    def __init__(self, plan: Plan, node: LinuxNode) -> None:
        files = LinuxFiles(plan, node).prepare().files
        self.files = {
            path: {"sha256": hashlib.sha256(file.content.encode()).hexdigest(), "mode": file.mode, "owner": "root:root"}
            for path, file in files.items()
        }
        self.facts: dict[str, Any] = {
            "programs": {"kubelet": "a"},
            "prepared": True,
            "joined": True,
            "containerd": {"service": "running"},
            "kubelet": {"service": "running"},
        }
        self.asked: list[Call[Any]] = []

    def run(self, call: Call[Any], *_: object) -> Any:
        self.asked.append(call)
        assert isinstance(call, on_linux.LinuxStatus)
        files = {path: self.files[path] for path in call.files if path in self.files}
        return answers.result(call, {**self.facts, "files": files})


@pytest.fixture
def made() -> tuple[Run, LinuxNode, Node]:
    plan = plans.make(plans.KVM, "1-1-1")
    node = plan.linux_nodes()[0]
    there = Node(plan, node)
    return runs.run(plan, guest=there), node, there


def done(run: Run, node: LinuxNode) -> bool:
    (step,) = (step for step in linux_node.steps(run, node) if step.reaches.kind is PREPARED)
    return step.done()


def test_a_node_that_is_as_rendered_is_done(made: tuple[Run, LinuxNode, Node]) -> None:
    run, node, there = made
    assert done(run, node)
    assert not LinuxSteps(run, node).condition().changed
    assert len(there.asked) == 2


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sha256": "0" * 64}, CONFIG),
        ({"mode": "0600"}, CONFIG),
    ],
)
def test_a_file_that_differs(made: tuple[Run, LinuxNode, Node], change: dict[str, str], named: str) -> None:
    run, node, there = made
    there.files[CONFIG] = {**there.files[CONFIG], **change}
    assert not done(run, node)
    assert LinuxSteps(run, node).condition().changed == {named: PREPARED}


@pytest.mark.parametrize(
    ("facts", "named"),
    [
        ({"left_over": ["/etc/old"]}, "/etc/old"),
        ({"differing": ["sysctl net.ipv4.ip_forward"]}, "sysctl net.ipv4.ip_forward"),
        ({"prepared": False}, "programs"),
    ],
)
def test_other_differences(made: tuple[Run, LinuxNode, Node], facts: dict[str, Any], named: str) -> None:
    run, node, there = made
    there.facts |= facts
    assert not done(run, node)
    assert LinuxSteps(run, node).condition().changed == {named: PREPARED}


def test_a_file_that_is_gone(made: tuple[Run, LinuxNode, Node]) -> None:
    run, node, there = made
    del there.files[CONFIG]
    assert LinuxSteps(run, node).condition().changed == {CONFIG: PREPARED}


def test_a_node_that_never_joined_has_no_changed_files(made: tuple[Run, LinuxNode, Node]) -> None:
    """Everything is still pending: only the membership is missing."""
    run, node, there = made
    there.files.clear()
    there.facts["joined"] = False
    assert not LinuxSteps(run, node).condition().changed


def test_files_of_kubeadm_do_not_count(made: tuple[Run, LinuxNode, Node]) -> None:
    run, node, _ = made
    for path in LinuxFiles(run.plan, node).prepare().files:
        assert not path.startswith("/var/lib/kubelet/"), "kubeadm-flags.env and config.yaml are kubeadm's"
        assert not path.startswith("/etc/kubernetes/manifests/")


def test_a_node_that_can_t_be_asked_is_not_done(made: tuple[Run, LinuxNode, Node]) -> None:
    run, node, there = made
    there.run = lambda *_: (_ for _ in ()).throw(GuestError("it does not answer"))  # type: ignore[method-assign]
    assert not done(run, node)
