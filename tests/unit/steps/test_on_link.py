"""Pods of workers that are in the same network as the external cluster's own nodes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from lab_fakes import Api

from winlab.adapters.kube.kubectl import Kubectl
from winlab.design.clusters.networks import BACKEND
from winlab.design.cni.model import NodeNetwork
from winlab.engine.run import Run
from winlab.steps import pod_network


def node(name: str, address: str, pods: str = "", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {key.replace("_", "-"): text for key, text in annotations.items()}},
        "spec": {"podCIDR": pods} if pods else {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }


def run_of(monkeypatch: pytest.MonkeyPatch, mode: str, *rows: dict[str, Any]) -> tuple[Run, Api]:
    api = Api({"get nodes": {"items": list(rows)}, "annotate": ""})
    monkeypatch.setattr(Kubectl, "of", lambda _folder: api)
    network = SimpleNamespace(mode=mode, cidr="172.18.0.0/16")
    plan = SimpleNamespace(network=network, members=[SimpleNamespace(name="node-1", address="172.18.255.101")])
    return cast(Run, SimpleNamespace(plan=plan, folder=None)), api


ROWS = (
    node("cp", "172.18.0.2", "10.244.0.0/24"),
    node("node-1", "172.18.255.101", "10.244.1.0/24"),
    node("young", "172.18.0.3"),
    node("away", "192.0.2.3", "10.244.3.0/24"),
    node("other-lab", "fd00::3", "10.244.4.0/24"),
)


def test_the_cluster_s_nodes_in_the_network_get_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = run_of(monkeypatch, "attached", *ROWS)
    assert pod_network.others(run) == [NodeNetwork("cp", "linux", "172.18.0.2", "10.244.0.0/24")]


def test_a_lab_behind_its_router_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    run, api = run_of(monkeypatch, "nat", *ROWS)
    assert pod_network.others(run) == []
    assert api.asked == []


def test_flannel_by_host_gw_is_shown_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"metadata": {"name": "cp", "annotations": {BACKEND: "host-gw"}}}
    run, api = run_of(monkeypatch, "attached", theirs, node("node-1", "172.18.255.101"))
    (worker,) = run.plan.members
    pod_network.announce(run, worker)
    said, _ = api.asked[-1]
    assert said.startswith("annotate node node-1 --overwrite flannel.alpha.coreos.com/kube-subnet-manager=true")
    assert "flannel.alpha.coreos.com/backend-type=host-gw" in said
    assert said.endswith("flannel.alpha.coreos.com/public-ip=172.18.255.101")


def test_other_networks_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    run, api = run_of(monkeypatch, "attached", *ROWS)
    pod_network.announce(run, run.plan.members[0])
    assert [line.split()[0] for line, _ in api.asked] == ["get"]
