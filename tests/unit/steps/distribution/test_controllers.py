"""Further controllers: how an interrupted attempt is undone."""

from __future__ import annotations

from typing import Any

import answers
import certificates
import plans
import pytest
import runs

from winlab.adapters.kube import authority, tokens
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.contract.call import Call, R
from winlab.design.distribution import known
from winlab.design.distribution.kubeadm.config import JoinCredentials
from winlab.errors import GuestError
from winlab.steps import control_plane
from winlab.steps.distribution import access
from winlab.steps.distribution.kubeadm import administrator, credentials


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
            done.append(
                (
                    self.name,
                    call.script,
                    settings.get("address") or settings.get("settled") or settings.get("arguments", [""])[0],
                )
            )
            return answers.result(call, {"started": started and self.name == "controller-2"})

    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _state: None))
    monkeypatch.setattr(tokens, "ca_hash", lambda _pem: "sha256:0")
    monkeypatch.setattr(authority, "authority", lambda _path: "")
    monkeypatch.setattr(
        administrator, "hand_over", lambda _run, first, there: done.append((there.name, "admin.conf of", first.name))
    )
    monkeypatch.setattr(credentials, "lent", lambda *_args: Lent())
    there = runs.run(plans.make(plans.TCG, "3-0-1"), guests=lambda node: Guest(node.name))
    runs.titled(control_plane.steps(there), "join controller-2").run(Voice())  # type: ignore[arg-type]
    undone = [("controller-1", "forget-member", "10.77.0.12"), ("controller-2", "run-kubeadm", "reset")]
    assert done == [
        ("controller-1", "run-kubeadm", "init"),
        ("controller-2", "status", True),
        *(undone if started else []),
        ("controller-2", "admin.conf of", "controller-1"),  # which a reset would remove
        ("controller-2", "run-kubeadm", "join"),
    ]


class Lent:
    """Stands for a token that is lent."""

    def __enter__(self) -> JoinCredentials:
        return JoinCredentials("abcdef.0123456789abcdef", ("sha256:0",), "0" * 64)

    def __exit__(self, *_args: object) -> None:
        pass


def played_controller(monkeypatch: pytest.MonkeyPatch, told: list[str]) -> runs.Run:
    """A lab whose controller shows these admin.conf, one after the other."""

    class Guest:
        def execute(self, command: list[str]) -> str:
            assert command == ["sudo", "cat", known.DEFAULT.admin_file]
            return told.pop(0)

        def run(self, call: Call[R], *_args: object) -> R:
            return answers.result(call, {})

    monkeypatch.setattr(access, "_await_api", lambda *_: None)
    return runs.run(plans.make(plans.TCG, "1-0-1"), guest=Guest())


def test_a_hostile_admin_conf_never_reaches_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    there = played_controller(monkeypatch, [certificates.admin(user={"exec": {"command": "/bin/sh"}})])
    with pytest.raises(GuestError, match="not as kubeadm writes it"):
        runs.titled(control_plane.steps(there), "kubeconfig").run(Voice())  # type: ignore[arg-type]
    assert not there.folder.kubeconfig.exists()


def test_another_ca_is_refused_until_winlab_recreates_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = certificates.admin(cluster={"certificate-authority-data": certificates.coded(certificates.OTHER_CA)})
    both = certificates.admin(
        cluster={"certificate-authority-data": certificates.coded(certificates.CA + certificates.OTHER_CA)}
    )
    there = played_controller(monkeypatch, [certificates.admin(), certificates.admin(), other, both, other])
    steps = control_plane.steps(there)
    kubeconfig = runs.titled(steps, "kubeconfig")
    kubeconfig.run(Voice())  # type: ignore[arg-type]
    kubeconfig.run(Voice())  # type: ignore[arg-type]
    before = there.folder.kubeconfig.read_text()
    for _ in (other, both):
        with pytest.raises(GuestError, match="another CA"):
            kubeconfig.run(Voice())  # type: ignore[arg-type]
    assert there.folder.kubeconfig.read_text() == before
    runs.titled(steps, "init controller-1").run(Voice())  # type: ignore[arg-type]
    with pytest.raises(GuestError, match="another CA"):  # also if the guest says that it was never initialised
        kubeconfig.run(Voice())  # type: ignore[arg-type]
    assert there.folder.kubeconfig.read_text() == before
