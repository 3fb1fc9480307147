"""Controllers by k3s: the first makes the cluster, this host gets in, others join with its token."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import answers
import certificates
import plans
import pytest
import runs
import yaml
from lab_fakes import Api

from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract.call import Call, R
from winlab.engine.run import Run
from winlab.errors import GuestError, UsageError
from winlab.steps import control_plane
from winlab.steps.distribution import access, external, known
from winlab.steps.distribution.k3s import TOKEN_FILE
from winlab.steps.linux import node as linux_node

TOKEN = f"K10{'0a' * 32}::server:{'0b' * 16}"
VOICE: Any = SimpleNamespace(say=lambda *_args: None)


class Guests:
    """The lab's nodes: what they were asked, and the files of the first."""

    def __init__(self, token: str = TOKEN) -> None:
        self.files = {TOKEN_FILE: f"{token}\n", "/etc/rancher/k3s/k3s.yaml": certificates.admin()}
        self.calls: list[tuple[str, str, dict[str, Any]]] = []

    def of(self, node: Any) -> Any:
        def run(call: Call[R], *_args: object) -> R:
            self.calls.append((node.name, call.script, call.settings("linux")))
            return answers.result(call, {})

        def execute(command: list[str], *_args: object) -> str:
            assert node.name == "controller-1"
            return self.files[command[-1]]

        return SimpleNamespace(run=run, execute=execute, tell=None)


def lab(guests: Guests, *changes: str) -> Run:
    return runs.run(plans.make(plans.KVM, "3-1-1", "kubernetes.distribution=k3s", *changes), guests=guests.of)


def test_controllers_start_with_what_they_need() -> None:
    guests = Guests()
    steps = control_plane.steps(lab(guests))
    for title in ("init controller-1", "join controller-2", "join controller-3"):
        runs.titled(steps, title).run(VOICE)
    join = {"server": "https://10.77.0.10:6443", "token": TOKEN}
    assert guests.calls == [
        ("controller-1", "run-k3s", {"server": "", "token": ""}),
        ("controller-2", "run-k3s", join),
        ("controller-3", "run-k3s", join),
    ]


@pytest.mark.parametrize("token", ["", "K10::server:x", f"{TOKEN}\nK3S_DEBUG=true", "abcdef.0123456789abcdef"])
def test_a_hostile_token_reaches_no_other_node(token: str) -> None:
    guests = Guests(token)
    with pytest.raises(GuestError, match="no token as k3s writes it"):
        runs.titled(control_plane.steps(lab(guests)), "join controller-2").run(VOICE)
    assert guests.calls == []


def test_this_host_gets_in_and_the_cluster_gets_its_dns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    guests, api = Guests(), Api({})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _folder: api))
    monkeypatch.setattr(access, "_await_api", lambda *_: None)
    there = lab(guests)
    step = runs.titled(control_plane.steps(there), "kubeconfig")
    step.run(VOICE)
    (applied,) = [text for line, text in api.asked if line.startswith("apply")]
    assert list(yaml.safe_load_all(applied or ""))[-1]["kind"] == "Deployment"
    assert there.folder.kubeconfig.exists()
    api.asked.clear()
    api.answers_["get deployment coredns"] = {"kind": "Deployment", "metadata": {"name": "coredns"}}
    step.run(VOICE)
    assert not [line for line, _ in api.asked if line.startswith("apply")]


def test_workers_join_as_those_of_an_external_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[str] = []
    monkeypatch.setattr(external.ExternalSteps, "_join", lambda _self, node, *_args: joined.append(node.name))
    there = lab(Guests(), "linux_workers.count=1")
    worker = next(one for one in there.plan.linux_nodes() if one.role == "worker")
    runs.titled(linux_node.steps(there, worker), f"join {worker.name}").run(VOICE)
    known.membership(there).join_windows(there.plan.windows_nodes()[0], lambda _call: None, VOICE)
    assert joined == [worker.name, "node-1"]


def test_its_administrator_cannot_be_replaced() -> None:
    there = lab(Guests())
    with pytest.raises(UsageError, match="can't lose its rights"):
        known.of(there).renew_administrator(there.folder, [])
