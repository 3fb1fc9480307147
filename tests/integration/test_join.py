"""A worker joins a control plane that winlab did not make, by the commands that users run, and leaves it again."""

from __future__ import annotations

import subprocess  # noqa: TID251 - reads what winlab wrote with tools of others
from pathlib import Path

import pytest
import yaml
from control_plane import NAME, PODS, PORT
from harness import On, Winlab, added, ask, traces, worked
from joining import LAB, Joined

OTHER = "it-k"  # a lab that is not made

pytestmark = pytest.mark.slow  # a second cluster and another clone: ten minutes on two cores


def test_without_the_server_s_address_nothing_is_touched(joined: Joined, scripted: Winlab) -> None:
    before = traces()
    admin = str(joined.elsewhere.admin)
    done = scripted("join", "--kubeconfig", admin, "--prefix", "other", "--rehearse", "--lab", OTHER)
    assert done.returncode == 2, done.stderr
    assert NAME in done.stderr
    assert f"--server ADDRESS:{PORT}" in done.stderr
    assert added(before, traces(), OTHER) == []


def test_the_node_is_ready(joined: Joined) -> None:
    # it was, but tests of other labs have kept the CPUs busy
    joined.elsewhere.kubectl("wait", "--for=condition=Ready", "node/node-1", "--timeout=110s")
    (node,) = joined.elsewhere.get("nodes")["items"]
    assert node["metadata"]["name"] == "node-1"
    assert {row["type"]: row["status"] for row in node["status"]["conditions"]}["Ready"] == "True"
    assert node["metadata"]["labels"]["kubernetes.io/os"] == "windows"
    assert node["spec"]["podCIDR"].startswith(PODS.removesuffix(".0.0/16"))
    assert {"type": "InternalIP", "address": "10.77.0.101"} in node["status"]["addresses"]
    assert "node-1" in joined.printed


def test_the_cluster_got_a_runtime_class_and_nothing_else(joined: Joined) -> None:
    elsewhere = joined.elsewhere
    assert [row["metadata"]["name"] for row in elsewhere.get("runtimeclasses")["items"]] == ["windows-2022"]
    assert [row["metadata"]["name"] for row in elsewhere.get("daemonsets", "-A")["items"]] == ["kube-proxy"]
    # kubeadm's own phase made one token; winlab's are gone
    tokens = elsewhere.get("secrets", "-n", "kube-system", "--field-selector=type=bootstrap.kubernetes.io/token")
    assert len(tokens["items"]) == 1


def test_the_worker_knows_the_server_by_its_name_and_no_administrator(joined: Joined, scripted: Winlab) -> None:
    there = ask(
        On(scripted, LAB),
        "node-1",
        kubeconfig="type C:\\etc\\kubernetes\\kubelet.conf",
        credentials="dir /b C:\\etc\\kubernetes",
        programs="dir /b C:\\k",
    )
    assert f"https://{NAME}:{PORT}" in there["kubeconfig"]
    assert "kubelet.conf" in there["credentials"]
    assert "kubelet.exe" in there["programs"]
    for listed in (there["credentials"], there["programs"]):
        assert "admin" not in listed.lower().replace("administrator", "")
        assert "join.yaml" not in listed


def test_the_lab_s_router_has_the_route(joined: Joined) -> None:
    share = joined.elsewhere.get("node", "node-1")["spec"]["podCIDR"]
    routes = subprocess.run(
        ["ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "lr-route-list", f"winlab-{LAB}-router"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert [line.split()[1] for line in routes.splitlines() if share in line] == ["10.77.0.101"]


def test_the_kubeconfig_is_a_copy_for_its_owner_alone(joined: Joined, scripted: Winlab, state: Path) -> None:
    path = state / "labs" / LAB / "kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    printed = yaml.safe_load(scripted.ok("kubeconfig", "--lab", LAB))
    original = yaml.safe_load(joined.elsewhere.admin.read_text())
    assert printed["users"][0]["user"] == original["users"][0]["user"]
    assert printed["current-context"] == f"winlab-{LAB}"
    assert "node-1" in scripted.ok("kubectl", "--lab", LAB, "--", "get", "nodes")


def test_a_second_run_changes_nothing(joined: Joined, scripted: Winlab) -> None:
    found = worked(scripted.events(*joined.command))
    found.pop("look at the cluster")
    assert found == {}


def test_another_lab_can_t_have_the_name(joined: Joined, scripted: Winlab) -> None:
    done = scripted(*joined.command[:-1], "it-m")
    assert done.returncode == 2, done.stderr
    assert "already has nodes of the same names: node-1" in done.stderr
    assert "it-m" not in scripted.ok("list")


def test_destroy_takes_the_node_out(joined: Joined, scripted: Winlab) -> None:
    done = scripted.events("destroy", "--lab", LAB)
    assert "remove node node-1" in str(done)
    assert joined.elsewhere.get("nodes")["items"] == []
    assert added(joined.before, traces(), LAB) == []
