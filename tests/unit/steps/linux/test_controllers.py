"""Further controllers: how a try that was interrupted is undone."""

from __future__ import annotations

from typing import Any

import answers
import plans
import pytest
import runs

from winlab.adapters.kube import authority, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract import Call, R
from winlab.design.render import kubeadm
from winlab.steps import joining
from winlab.steps.linux import control_plane


class Voice:
    def say(self, *_args: object) -> None:
        pass


@pytest.mark.parametrize("started", [False, True])
def test_etcd_forgets_a_controller_before_it_tries_again(monkeypatch: pytest.MonkeyPatch, started: bool) -> None:
    done: list[tuple[str, str, Any]] = []

    class Guest:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, call: Call[R], *_args: object) -> R:
            settings = call.settings("linux")
            done.append((self.name, call.script, settings.get("address") or settings.get("arguments", [""])[0]))
            return answers.result(call, {"started": started and self.name == "controller-2"})

    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _state: None))
    monkeypatch.setattr(tokens, "ca_hash", lambda _pem: "sha256:0")
    monkeypatch.setattr(authority, "authority", lambda _path: "")
    monkeypatch.setattr(joining, "credentials", lambda *_args: Lent())
    there = runs.run(plans.make(plans.TCG, "3-0-1"), guests=lambda node: Guest(node.name))
    runs.titled(control_plane.steps(there), "join controller-2").run(Voice())  # type: ignore[arg-type]
    undone = [("controller-1", "forget-member", "10.77.0.12"), ("controller-2", "run-kubeadm", "reset")]
    assert done == [
        ("controller-1", "run-kubeadm", "init"),
        ("controller-2", "status", ""),
        *(undone if started else []),
        ("controller-2", "run-kubeadm", "join"),
    ]


class Lent:
    """Stands for a token that is lent."""

    def __enter__(self) -> kubeadm.JoinCredentials:
        return kubeadm.JoinCredentials("abcdef.0123456789abcdef", ("sha256:0",), "0" * 64)

    def __exit__(self, *_args: object) -> None:
        pass
