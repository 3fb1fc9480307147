"""The rehearsal's cluster: a real Linux controller, and a worker with the real Windows programs under Wine."""

from __future__ import annotations

from harness import Labs, ask, get, is_ready, nodes, text

from winlab.design.catalog import versions


def test_create_ends_with_a_ready_hybrid_cluster(labs: Labs) -> None:
    found = nodes(labs)
    assert set(found) == {"controller-1", "node-1"}
    node = found["node-1"]
    assert is_ready(node), node["status"]["conditions"]
    info = node["status"]["nodeInfo"]
    assert info["operatingSystem"] == "windows"
    assert info["kubeletVersion"] == versions.get().kubernetes
    assert info["containerRuntimeVersion"] == f"containerd://{versions.get().containerd}"
    assert "node-1" in labs.printed_a


def test_the_windows_node_is_labelled_and_tainted(labs: Labs) -> None:
    node = nodes(labs)["node-1"]
    labels = node["metadata"]["labels"]
    assert labels["kubernetes.io/os"] == "windows"
    assert labels["node.kubernetes.io/windows-build"] == "10.0.20348"
    taints = [{key: taint[key] for key in ("key", "value", "effect")} for taint in node["spec"]["taints"]]
    assert {"key": "os", "value": "windows", "effect": "NoSchedule"} in taints
    assert {"type": "InternalIP", "address": "10.77.0.101"} in node["status"]["addresses"]
    assert get(labs, "runtimeclass", "windows-2022")["handler"] == "runhcs-wcow-process"


def test_no_admin_credential_is_on_the_worker(labs: Labs) -> None:
    """What it holds was signed for the node itself; the token is gone."""
    there = ask(
        labs.a,
        "node-1",
        credentials="dir /b C:\\etc\\kubernetes",
        programs="dir /b C:\\k",
        kubeconfig="type C:\\etc\\kubernetes\\kubelet.conf",
    )
    assert "kubelet.conf" in there["credentials"]
    assert "kubelet.exe" in there["programs"]
    for name in ("admin", "bootstrap-kubelet.conf", "join.yaml"):
        assert name not in there["credentials"] + there["programs"]
    assert "kubelet-client-current.pem" in there["kubeconfig"]
    assert "token:" not in there["kubeconfig"]


def test_logs_of_both_systems(labs: Labs) -> None:
    printed = text(labs.a("logs", "--lines", "5"))
    for part in ("controller-1", "node-1", "kubelet", "containerd"):
        assert part in printed
