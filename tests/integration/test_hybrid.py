"""The rehearsal's cluster: a real Linux controller, and a worker with the real Windows programs under Wine."""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - asks OVN with its own tool
from pathlib import Path
from typing import Any

from harness import LAB_A, Labs
from lxml import etree


def text(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def get(labs: Labs, *words: str) -> Any:
    return json.loads(text(labs.a("kubectl", "--", "get", *words, "--output=json")))


def nodes(labs: Labs) -> dict[str, Any]:
    return {row["metadata"]["name"]: row for row in get(labs, "nodes")["items"]}


def test_create_ends_with_a_ready_hybrid_cluster(labs: Labs) -> None:
    found = nodes(labs)
    assert set(found) == {"controller-1", "node-1"}
    for name, node in found.items():
        ready = {row["type"]: row["status"] for row in node["status"]["conditions"]}["Ready"]
        assert ready == "True", f"{name}: {node['status']['conditions']}"
        info = node["status"]["nodeInfo"]
        assert info["kubeletVersion"] == "v1.36.3"
        assert info["containerRuntimeVersion"] == "containerd://2.3.7"
        assert info["operatingSystem"] == ("windows" if name == "node-1" else "linux")
        assert name in labs.printed_a


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
    there = text(labs.a("exec", "node-1", "--", "dir /s /b C:\\etc\\kubernetes C:\\k"))
    for name in ("admin", "bootstrap-kubelet.conf", "join.yaml"):
        assert name not in there
    kubeconfig = text(labs.a("exec", "node-1", "--", "type C:\\etc\\kubernetes\\kubelet.conf"))
    assert "kubelet-client-current.pem" in kubeconfig
    assert "token:" not in kubeconfig


def test_the_router_carries_the_routes_of_the_pods(labs: Labs) -> None:
    """Profile l3: each node's share by its address, and nothing else."""
    addresses = {"controller-1": "10.77.0.11", "node-1": "10.77.0.101"}
    routes = subprocess.run(
        ["ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "lr-route-list", f"winlab-{LAB_A}-router"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = {line.split()[0]: line.split()[1] for line in routes.splitlines() if "10.244." in line}
    assert found == {node["spec"]["podCIDR"]: addresses[name] for name, node in nodes(labs).items()}


def test_the_smoke_test_says_what_a_rehearsal_can_not_do(labs: Labs, tmp_path: Path) -> None:
    report = tmp_path / "smoke.xml"
    only = "1,4,N1,N2,N3,N4,N6,N8"
    printed = text(labs.a("test", "smoke", "--only", only, "--output", "json", "--junit", str(report)))
    rows = {row["id"]: (row["outcome"], row["detail"]) for row in json.loads(printed)["results"]}
    for name in ("N1", "N2", "N3", "N4", "N6", "N8"):
        assert rows[name][0] == "passed", rows
    assert rows["1"][0] == rows["4"][0] == "not-in-a-rehearsal"
    assert etree.parse(report).getroot().xpath("count(//failure)") == 0


def test_logs_of_both_systems(labs: Labs) -> None:
    printed = text(labs.a("logs", "--lines", "5"))
    for part in ("controller-1", "node-1", "kubelet", "containerd"):
        assert part in printed
