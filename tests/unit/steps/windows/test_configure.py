"""A Windows node has what add-ons give it: compared with what is there, written once, named where it differs."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import answers
import plans
import pytest
import runs
from distributions import Distribution, install_motd

from winlab.design.contract.call import Call
from winlab.design.plan.model import Plan
from winlab.design.render.windows import WindowsFiles
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.steps.states import CONFIGURED, CONTAINERD
from winlab.steps.windows import node as windows_node

pytestmark = pytest.mark.usefixtures("fresh_registry")
FILE = r"C:\ProgramData\motd\motd.txt"
VALUE = r"HKLM\SOFTWARE\Microsoft\Windows\CurrentVersion\Policies\System\LegalNoticeText"
GIVEN = {"files": {FILE: hashlib.sha256(b"hello\r\n").hexdigest()}, "registry": {VALUE: "string hello"}}


class Node:
    """A member that says what a test wants."""

    def __init__(self, plan: Plan, facts: dict[str, Any]) -> None:
        config = WindowsFiles(plan, plan.windows_nodes()[0]).containerd().config
        digest = hashlib.sha256(config.encode()).hexdigest()
        self.facts = {
            "containerd": {"service": "running", "sha256": "a", "config_sha256": digest},
            "kubelet": {"service": "running", "joined": True},
            **facts,
        }
        self.asked: list[Call[Any]] = []
        self.tell = None

    def run(self, call: Call[Any], *_: object) -> Any:
        self.asked.append(call)
        return answers.result(call, self.facts if call.script == "status" else {})


@pytest.fixture
def plan(distribution: partial[Distribution]) -> Plan:
    install_motd(distribution)
    return plans.make(plans.KVM, "1-1-1", "addons.motd={text: hello, on_nodes: true}")


def step(plan: Plan, there: Node) -> Any:
    return runs.titled(windows_node.steps(runs.run(plan, guest=there), plan.windows_nodes()[0]), "configure node-1")


def changed(plan: Plan, there: Node) -> Any:
    return windows_node.condition(runs.run(plan, guest=there), plan.windows_nodes()[0]).changed


@pytest.mark.parametrize(
    ("facts", "differing"),
    [
        (GIVEN, []),
        ({"files": {}, "registry": {}}, [FILE, VALUE]),
        ({**GIVEN, "files": {FILE: ""}}, [FILE]),
        ({**GIVEN, "registry": {VALUE: "string bye"}}, [VALUE]),
        ({**GIVEN, "files": {**GIVEN["files"], r"C:\old": ""}}, [r"C:\old"]),
        ({}, [FILE, VALUE]),  # the scripts on an older winlab's CD don't say
    ],
)
def test_differences_are_found(plan: Plan, facts: dict[str, Any], differing: list[str]) -> None:
    there = Node(plan, facts)
    assert step(plan, there).done() is not bool(differing)
    assert changed(plan, there) == dict.fromkeys(differing, CONFIGURED)


def test_it_is_written_before_the_node_joins(plan: Plan) -> None:
    there = Node(plan, {"files": {}, "registry": {}})
    step(plan, there).run(Quiet())
    assert there.asked[-1] == WindowsFiles(plan, plan.windows_nodes()[0]).configure()
    steps = windows_node.steps(runs.run(plan, guest=there), plan.windows_nodes()[0])
    assert CONFIGURED("lab", "node-1") in runs.titled(steps, "kubelet node-1").after


def test_an_older_cd_is_named(plan: Plan) -> None:
    there = Node(plan, {})
    with pytest.raises(GuestError, match="can't get the files and registry values") as error:
        step(plan, there).run(Quiet())
    assert "winlab node rebuild node-1" in error.value.cure
    assert [call.script for call in there.asked] == ["status"]


def test_a_node_whose_lab_gives_nothing_is_not_asked() -> None:
    plan = plans.make(plans.KVM, "1-1-1")
    there = Node(plan, {})
    assert step(plan, there).done()
    assert not changed(plan, there)


def test_a_changed_configuration_of_containerd(plan: Plan) -> None:
    there = Node(plan, {**GIVEN, "containerd": {"service": "running", "sha256": "a", "config_sha256": "b"}})
    assert changed(plan, there) == {r"C:\Program Files\containerd\config.toml": CONTAINERD}
    assert changed(plan, Node(plan, {**there.facts, "kubelet": {"service": "stopped", "joined": False}})) == {}
