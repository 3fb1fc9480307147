"""What an API server may send, and what is refused before it is used."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab_fakes import Api

from winlab.adapters.kube.kubectl import understood
from winlab.errors import ClusterError

NODE: dict[str, Any] = {
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"a": "b"}},
    "spec": {"podCIDR": "10.244.0.0/24", "taints": [{"key": "os", "value": "windows", "effect": "NoSchedule"}]},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "images": [{"names": None, "sizeBytes": 1}],
        "nodeInfo": {"bootID": "x"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}
WAITING = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}
POD: dict[str, Any] = {"kind": "Pod", "metadata": {"name": "p"}, "status": {"containerStatuses": [WAITING]}}


def changed(item: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = json.loads(json.dumps(item))
    *way, last = path.split(".")
    place = made
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    place[last] = value
    return dict(made)


def test_objects_of_kubernetes_are_kept_as_they_are() -> None:
    api = Api({"get nodes": {"items": [NODE]}, "get node ": NODE, "get pods,nodes": {"items": [POD, NODE]}})
    assert api.get("nodes") == {"items": [NODE]}
    assert api.get("node", "node-1") == NODE
    assert api.get("pods,nodes", "--all-namespaces") == {"items": [POD, NODE]}
    assert api.find("node", "node-1") == NODE
    assert Api({}).find("node", "node-1") is None


@pytest.mark.parametrize(
    "item",
    [
        [],
        "x",
        {},
        changed(NODE, "metadata", []),
        changed(NODE, "metadata.name", 5),
        changed(NODE, "metadata.labels", []),
        changed(NODE, "metadata.labels", {"a": {}}),
        changed(NODE, "spec", "x"),
        changed(NODE, "spec.taints", [{}]),
        changed(NODE, "status.addresses", [{"type": "InternalIP"}]),
        changed(NODE, "status.nodeInfo", "x"),
        changed(NODE, "status.images", [{"names": [1]}]),
    ],
)
def test_other_nodes_are_refused(item: Any) -> None:
    for words, answer in ((("nodes",), {"items": [NODE, item]}), (("node", "node-1"), item)):
        with pytest.raises(ClusterError, match="is not a Kubernetes object") as caught:
            Api({"get": answer if not isinstance(answer, list) else json.dumps(answer)}).get(*words)
        assert caught.value.why
        assert caught.value.cure


@pytest.mark.parametrize("answer", [{}, {"items": None}, {"items": {}}, {"items": [changed(POD, "status", [])]}])
def test_other_lists_are_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ClusterError):
        Api({"get": answer}).get("pods", "--all-namespaces")


@pytest.mark.parametrize("state", [{"waiting": "x"}, [], {"waiting": None}])
def test_a_container_s_state_is_that_of_kubernetes(state: Any) -> None:
    with pytest.raises(ClusterError):
        Api({"get": {"items": [changed(POD, "status.containerStatuses.0.state", state)]}}).get("pods")


def test_only_errors_of_such_documents_are_translated() -> None:
    with pytest.raises(ClusterError, match="X can't be understood"), understood("X"):
        raise KeyError("y")
    with pytest.raises(AssertionError), understood("X"):
        raise AssertionError
