"""A connection that is cut while a script runs in Windows: it is run again, a few times. Long waits are questions."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import answers
import plans
import pytest
import runs

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.design.cni.model import NodeNetwork
from winlab.design.contract import on_windows
from winlab.design.contract.call import Call, R
from winlab.design.render.windows import WindowsFiles
from winlab.engine.step import Step
from winlab.errors import ClusterError, GuestError, StalledError, UnreachableError
from winlab.events import Quiet
from winlab.steps import evidence, pod_network
from winlab.steps.windows import node as windows_node

CUT = UnreachableError("'node-1' does not answer WinRM.", why="cut off")


class Voice(Quiet):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        del fraction
        self.said.append(text)


class Node:
    """A node that answers scripts with these errors first; its status shows these endpoints, one after the other."""

    def __init__(self, *errors: Exception, endpoints: list[list[str] | Exception | None] | None = None) -> None:
        self.tag = SimpleNamespace(node="node-1")
        self.errors = list(errors)
        self.endpoints = endpoints or [[]]
        self.ran: list[str] = []
        self.cut = 0

    def run(self, call: Call[R], *_: Any) -> R:
        if call.script == "status":
            one = self.endpoints.pop(0) if len(self.endpoints) > 1 else self.endpoints[0]
            if isinstance(one, Exception):
                raise one
            return answers.result(call, {"endpoints": one})
        self.ran.append(call.script)
        if self.errors:
            raise self.errors.pop(0)
        return answers.result(call, {"changed": True, "service": "running"} if call.script == "proxy" else {})

    def disconnect(self) -> None:
        self.cut += 1


def step(node: Node, title: str) -> Step:
    plan = plans.make(plans.KVM, "1-1-1")
    return runs.titled(windows_node.steps(runs.run(plan, guest=node), plan.node("node-1")), title)


@pytest.mark.parametrize("title", ["containerd node-1", "binaries node-1", "kubelet node-1"])
def test_a_script_is_run_again_when_the_node_answers(title: str) -> None:
    node, voice = Node(CUT, CUT), Voice()
    step(node, title).run(voice)
    assert len(node.ran) == 3
    assert node.cut == 2
    assert [text for text in voice.said if "is run again" in text] == [
        f"the connection to node-1 was lost: {node.ran[0]} is run again ({number}/3)" for number in (2, 3)
    ]


def test_the_third_failure_is_reported() -> None:
    node = Node(*[CUT] * 3)
    with pytest.raises(UnreachableError):
        step(node, "containerd node-1").run(Quiet())
    assert len(node.ran) == 3


def test_a_script_that_fails_is_not_run_again() -> None:
    node = Node(GuestError("'containerd' failed"))
    with pytest.raises(GuestError, match="failed"):
        step(node, "containerd node-1").run(Quiet())
    assert len(node.ran) == 1


Pods = Callable[..., dict[str, Any]]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Node], tuple[Step, list[Any]]]:
    """The step of kube-proxy, and the API server's list of the node's pods, which the test fills."""

    def made(node: Node) -> tuple[Step, list[Any]]:
        own = NodeNetwork("node-1", "windows", "10.77.0.12", "10.244.1.0/24")
        call = on_windows.Proxy(command="c", kubeconfig="k", config="winkernel:\n", source_endpoint="Calico_ep")
        monkeypatch.setattr(pod_network, "await_share", lambda *_: own)
        monkeypatch.setattr(WindowsFiles, "proxy", lambda *_: call)
        monkeypatch.setattr(windows_node.joining, "proxy_kubeconfig", lambda *_: "k")
        told: list[Any] = []

        def get(*_: str) -> dict[str, Any]:
            one = told.pop(0) if len(told) > 1 else told[0]
            if isinstance(one, Exception):
                raise one
            return {"items": one}

        monkeypatch.setattr(domains, "state", lambda *_: "running")
        monkeypatch.setattr(Kubectl, "of", lambda _: type("K", (), {"get": staticmethod(get)}))
        runs.clock(monkeypatch)
        return step(node, "proxy node-1"), told

    return made


def pod(reason: str) -> dict[str, Any]:
    status = {"initContainerStatuses": [{"state": {"waiting": {"reason": reason}}}], "containerStatuses": []}
    return {"metadata": {"name": "calico-node-windows-x"}, "status": status}


def test_the_network_s_agent_is_waited_for_by_short_questions(proxy: Any) -> None:
    """While it makes its switch the node does not answer; nothing in the node waits meanwhile."""
    node, voice = Node(endpoints=[[], CUT, ["Calico_ep"]]), Voice()
    one, told = proxy(node)
    told += [[pod("PodInitializing")]]
    one.run(voice)
    assert node.ran == ["proxy"]
    assert any("'Calico_ep'; calico-node-windows-x: PodInitializing" in text for text in voice.said), voice.said


def test_an_agent_that_creates_nothing_is_reported_with_its_pods(proxy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "keep", lambda *_: None)
    node = Node(endpoints=[[]])
    one, told = proxy(node)
    told += [ClusterError("The API server does not answer."), [pod("ImagePullBackOff")]]
    with pytest.raises(StalledError) as caught:
        one.run(Quiet())
    assert "ImagePullBackOff" in caught.value.why
    assert node.ran == []


def test_scripts_of_an_older_cd_wait_by_themselves(proxy: Any) -> None:
    node = Node(endpoints=[None])
    one, told = proxy(node)
    told += [[]]
    one.run(Quiet())
    assert node.ran == ["proxy"]
