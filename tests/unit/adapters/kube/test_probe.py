"""What is read of an external cluster. tests/integration/test_identity.py reads real ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from lab_fakes import Api, allowed

from winlab.adapters.kube import probe
from winlab.design.clusters.model import SeenNode
from winlab.errors import ClusterError

NODE = {
    "metadata": {"name": "cp", "labels": {"a": "b", "long": "x" * 5000}, "annotations": {"k3s.io/node-args": "[]"}},
    "spec": {"podCIDR": "10.42.0.0/24", "providerID": "k3s://cp"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}, {"type": "Hostname", "address": "cp"}],
        "nodeInfo": {"osImage": "Debian"},
    },
}
EVERYTHING = [{"operator": "Exists"}]


def daemon_set(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "net"}, "spec": {"template": {"spec": spec}}}


def api(**changes: Any) -> Api:
    slices = [{"metadata": {"name": "kubernetes"}, "addressType": "IPv4", "ports": [{"port": 6443}],
               "endpoints": [{"addresses": ["192.0.2.11"]}, {"addresses": ["192.0.2.10"]}]}]  # fmt: skip
    answers = {
        "version": {"serverVersion": {"gitVersion": "v1.36.1+k3s1"}},
        "get daemonsets": {"items": [daemon_set("agent", tolerations=EVERYTHING), daemon_set("other")]},
        "get nodes": {"items": [NODE]},
        "get endpointslices": {"items": slices},
        "create": allowed(),
    }
    return Api({**answers, **{key.replace("_", " "): value for key, value in changes.items()}})


def test_what_is_seen() -> None:
    seen = probe.look(api())
    assert (seen.version, seen.rbac, seen.kubeadm, seen.lacking) == ("v1.36.1+k3s1", False, False, ())
    assert seen.endpoints == ("192.0.2.10:6443", "192.0.2.11:6443")
    assert seen.daemon_sets == {"agent": "net", "other": "net"}
    assert seen.nodes == (
        SeenNode(
            "cp", {"a": "b"}, {"k3s.io/node-args": "[]"}, "k3s://cp", "Debian", ("192.0.2.10",), "10.42.0.0/24"
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "eager"),
    [
        ({"tolerations": EVERYTHING}, True),
        ({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, False),
        ({"tolerations": [{"operator": "Exists", "key": "a"}]}, False),
        ({"tolerations": EVERYTHING, "nodeSelector": {"kubernetes.io/os": "linux"}}, False),
        ({"tolerations": EVERYTHING, "affinity": {"nodeAffinity": [{"key": "kubernetes.io/os"}]}}, False),
        ({}, False),
    ],
)
def test_daemon_sets_that_windows_nodes_would_get(spec: dict[str, Any], eager: bool) -> None:
    found = probe.look(api(get_daemonsets={"items": [daemon_set("one", **spec)]}))
    assert found.eager == (("one",) if eager else ())


def test_what_the_credentials_lack() -> None:
    assert probe.look(api(create=allowed(1, -1))).lacking == ("approve certificates", "delete nodes")
    with pytest.raises(ClusterError, match="does not say"):
        probe.look(api(create="true"))


def test_a_network_whose_windows_half_winlab_adds_needs_more_rights() -> None:
    settings = json.dumps({"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}})
    found = probe.look(
        api(
            get_daemonsets={"items": [daemon_set("kube-flannel-ds")]},
            **{"get configmap kubeadm-config": "", "get configmap": json.dumps({"data": {"net-conf.json": settings}})},
            create=allowed(-2),
        )
    )
    assert found.lacking == ("create DaemonSets in kube-system",)


@pytest.mark.parametrize(
    "answers",
    [
        {"get_nodes": {"items": [{"metadata": {"name": 7}}]}},
        {"get_nodes": {"items": [{**NODE, "spec": []}]}},
        {"get_endpointslices": {"items": [{"metadata": {"name": "a"}, "addressType": "IPv4", "ports": [{"port": "x"}],
                                           "endpoints": [{"addresses": ["192.0.2.1"]}]}]}},
        {"get_daemonsets": {"items": [{"metadata": {"name": "a", "namespace": "b"}, "spec": {"template": []}}]}},
        {"get_daemonsets": {"items": "x"}},
        {"version": {"serverVersion": {"gitVersion": "nonsense"}}},
    ],
)  # fmt: skip
def test_answers_of_another_shape_are_refused(answers: dict[str, Any]) -> None:
    with pytest.raises(ClusterError):
        probe.look(api(**answers))
