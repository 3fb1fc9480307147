"""The steps of workers for an external cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import plans
import pytest
import runs
from external import REHEARSAL, kubelet_command, make, node
from lab_fakes import Api

from winlab.adapters.kube import identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.render import nodes
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.steps import joining, pod_network, ready


def test_the_kubeconfig_is_kept_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = runs.run(make(REHEARSAL))
    there.folder.make()
    there.folder.kubectl.touch()
    answering = True
    monkeypatch.setattr(Kubectl, "answers", lambda _self: answering)
    config = joining.given_kubeconfig(there, "secret")
    assert not config.done()
    config.run(Quiet())
    assert there.folder.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert config.done()
    answering = False
    assert not config.done()
    with pytest.raises(ClusterError, match="no longer answers"):
        config.run(Quiet())


def test_a_joined_node_s_serving_certificate_is_approved_once_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = [["csr-1"], ["csr-1"], []]
    there = runs.run(make(REHEARSAL))
    approved: list[str] = []

    def requests(_kubectl: object, node: str, given: list[str]) -> tuple[list[str], list[str]]:
        assert (node, given) == ("node-1", ["10.77.0.101"])
        return asked_for.pop(0), ["'csr-2': it asks for other usages"]

    ready_now = node(status={"conditions": [{"type": "Ready", "status": "True"}]})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _folder: Api({"get node node-1": ready_now})))
    monkeypatch.setattr(identity, "serving_requests", requests)
    monkeypatch.setattr(identity.signing, "approve", lambda _kubectl, name: approved.append(name))
    monkeypatch.setattr(ready, "require_no_crash", lambda *_: None)
    step, said = runs.titled(ready.steps(there), "ready node-1"), list[str]()
    assert not step.done()
    step.run(SimpleNamespace(say=said.append))  # type: ignore[arg-type]
    assert approved == ["csr-1"]
    assert "a certificate of node-1 is not approved: 'csr-2': it asks for other usages" in said
    assert step.done()


def test_nodes_carry_their_machine_s_label_and_the_lab_s_own_don_t() -> None:
    there = runs.run(make(REHEARSAL))
    node = there.plan.node("node-1")
    assert f"--node-labels=winlab.internal/machine={node.uuid}" in kubelet_command(there.plan, "node-1")
    own = runs.run(plans.make(plans.TCG, "1-1-1", REHEARSAL))
    assert "--node-labels" not in kubelet_command(own.plan, "node-1")


def test_nodes_of_several_pools_carry_their_pool_s_label() -> None:
    there = runs.run(make(REHEARSAL, "linux_workers.count=1"))
    linux = nodes.member(there.plan, there.plan.node("linux-1"))
    assert "winlab.internal/pool=node,winlab.internal/machine=" in kubelet_command(there.plan, "node-1")
    assert linux.labels["winlab.internal/pool"] == "linux"


@pytest.mark.parametrize(
    ("listed", "cidr"),
    [
        ([[], [{"metadata": {"name": "node-1"}, "spec": {}}]], "10.200.1.0/24"),
        ([], "10.200.1.0/24"),
    ],
)
def test_a_node_may_appear_shortly_after_its_join(
    monkeypatch: pytest.MonkeyPatch, listed: list[list[dict[str, Any]]], cidr: str
) -> None:
    there = runs.run(make(REHEARSAL))
    looks = [*listed, [{"metadata": {"name": "node-1"}, "spec": {"podCIDR": cidr}}]]
    api = SimpleNamespace(get=lambda _kind: {"items": looks.pop(0)})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _state: api))
    runs.clock(monkeypatch)
    assert pod_network.await_share(there, there.plan.node("node-1"), Quiet()).pod_cidr == cidr
    assert looks == []
