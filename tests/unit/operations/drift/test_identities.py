"""What an external cluster must have so that a lab's nodes keep their certificates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import runs
from external import K3S

from winlab.adapters.kube import identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import spec
from winlab.design.plan import make as plan
from winlab.errors import ClusterError
from winlab.events import Quiet
from winlab.operations.drift import cluster
from winlab.operations.drift.model import Finding, Subject
from winlab.steps.states import OBJECTS, READY


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What is missing and waiting in the cluster, and what was done."""
    state = SimpleNamespace(missing=[], waiting=[], did=[])
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda *_: None))
    monkeypatch.setattr(identity, "missing", lambda _kubectl, _node, *, proxy: state.missing if proxy else [])
    monkeypatch.setattr(identity, "serving_requests", lambda *_: (state.waiting, []))
    monkeypatch.setattr(identity, "allow_renewal", lambda _kubectl, node: state.did.append(f"renewal {node}"))
    own = SimpleNamespace(start=lambda service, _progress: state.did.append(f"start {service}"))
    monkeypatch.setattr(cluster.systems, "of", lambda *_: own)
    return state


def subject(*changes: str, external: bool = True) -> Any:
    wanted = spec.load("1-1-1", changes)
    made = plan.make(wanted, "lab", plans.TCG, plans.stock(wanted), K3S if external else None)
    return Subject(runs.run(made), made.nodes, True, False)


def findings(*changes: str, external: bool = True) -> list[Finding]:
    return list(cluster.identities(subject(*changes, external=external), Quiet()))


def test_nothing_is_missing(there: SimpleNamespace) -> None:
    assert findings("workers.os=windows-2022") == []
    there.missing = ["clusterrolebinding/winlab:renewal:node-1"]
    assert findings("workers.os=windows-2022", external=False) == []  # its own cluster binds the group of all nodes


def test_what_is_gone_is_made_again_and_kube_proxy_gets_another_token(there: SimpleNamespace) -> None:
    there.missing = ["serviceaccount/winlab-kube-proxy-node-1"]
    (found,) = findings("workers.os=windows-2022")
    assert (found.drift.what, found.drift.repairable) == ("identity", True)
    assert found.drift.actual == "gone: serviceaccount/winlab-kube-proxy-node-1"
    assert found.repair is not None
    found.repair(Quiet())
    assert there.did == ["renewal node-1", "start kube-proxy"]


def test_a_linux_node_needs_a_rebuild_for_another_token(there: SimpleNamespace) -> None:
    there.missing = ["serviceaccount/winlab-kube-proxy-node-1"]
    (found,) = findings("workers.os=debian-13")
    assert (found.drift.repairable, "winlab node rebuild node-1" in found.drift.action) == (False, True)
    there.missing = ["clusterrolebinding/winlab:renewal:node-1"]
    (found,) = findings("workers.os=debian-13")
    assert found.drift.repairable


def test_a_renewed_serving_certificate_is_approved(there: SimpleNamespace) -> None:
    there.waiting = ["csr-7"]
    (found,) = findings("workers.os=windows-2022")
    assert (found.drift.what, found.steps) == ("serving certificate", (READY,))


def test_objects_that_are_gone_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an external cluster, too: its flannel has winlab's half for Windows."""
    said = ""
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda *_: Kubectl(Path("kubectl"), Path("config"))))
    monkeypatch.setattr(Kubectl, "run", lambda *_args, **_how: said)
    (found,) = list(cluster.objects(subject("workers.os=windows-2022"), Quiet()))
    assert (found.drift.actual, found.lab_steps) == ("gone: runtimeclass.node.k8s.io/windows-2022", (OBJECTS,))
    said = "runtimeclass.node.k8s.io/windows-2022\n"
    assert list(cluster.objects(subject("workers.os=windows-2022"), Quiet())) == []


def test_a_cluster_that_does_not_answer_is_another_inspection_s_matter(
    there: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_how: object) -> None:
        raise ClusterError("away")

    monkeypatch.setattr(identity, "missing", refuse)
    assert findings("workers.os=windows-2022") == []


def test_only_workers_of_a_lab_s_own_cluster_have_an_identity_of_winlab_s(there: SimpleNamespace) -> None:
    """k3s makes those of controllers, and its cluster binds no group of nodes."""
    there.missing = ["clusterrolebinding/winlab:renewal:node-1"]
    own = findings("workers.os=windows-2022", "kubernetes.distribution=k3s", external=False)
    assert [found.drift.node for found in own] == ["node-1"]
