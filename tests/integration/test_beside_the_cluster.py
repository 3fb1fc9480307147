"""A Linux and a Windows machine beside a cluster, which pods reach by their names, like build agents.

The pods' network is host-gw's: only nodes have routes to pods, so the way back from such a machine is the lab's router.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import results
from harness import Traces, Winlab, added, traces, worked

LAB = "it-beside"
ON = ("--lab", LAB)
SPEC = """\
controllers: {count: 1}
workers:
  - {name: node, os: debian-13}
  - {name: agent, os: debian-13, memory: 1GiB, cpus: 1, cluster: false}
  - {name: build, os: windows-rehearsal, cluster: false}
network: {cni: host-gw}
"""
HANGS = 1800.0  # seconds: the kubelet brings CoreDNS its file within two minutes, on hardware
POD = (
    "kubectl",
    *ON,
    "--",
    "exec",
    "linux-1",
    "--namespace=winlab-smoke",
    "--",
    "/agnhost",
    "connect",
    "--timeout=20s",
)
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before(host: None, scripted: Winlab) -> Traces:
    scripted.ok("destroy", *ON, "--anyone")
    return traces()


@pytest.fixture(scope="module")
def create(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    path = tmp_path_factory.mktemp("spec") / "lab.yaml"
    path.write_text(SPEC)
    return ("create", "--spec", str(path), *ON)


@pytest.fixture(scope="module")
def lab(before: Traces, scripted: Winlab, create: tuple[str, ...]) -> Iterator[Winlab]:
    try:
        scripted.ok(*create)
        yield scripted
    finally:
        scripted("destroy", *ON)


@pytest.fixture(scope="module")
def pods(lab: Winlab) -> Winlab:
    """The lab with the pods of the smoke test in it."""
    lab.ok("test", "smoke", "--keep", *ON)
    return lab


def corefile(lab: Winlab) -> str:
    found = json.loads(lab.ok("kubectl", *ON, "--", "get", "configmap", "coredns", "-n", "kube-system", "-o", "json"))
    return str(found["data"]["Corefile"])


def until_connected(lab: Winlab, where: str) -> None:
    """Until a pod opens a connection by that name."""
    end = time.monotonic() + HANGS
    while (done := lab(*POD, where)).returncode != 0:
        assert time.monotonic() < end, f"{where}: {done.stdout}\n{done.stderr}"
        time.sleep(5)


def rows(lab: Winlab) -> dict[str, Any]:
    """The output of status, also if its exit code says that a node is off."""
    return {row["name"]: row for row in results.items(lab("status", *ON, "--output", "json").stdout)}


def test_status_shows_them(lab: Winlab) -> None:
    found = rows(lab)
    assert {name: (row["role"], row["cluster"], row["answers"]) for name, row in found.items()} == {
        "controller-1": ("controller", True, True),
        "node-1": ("worker", True, True),
        "agent-1": ("machine", False, True),
        "build-1": ("machine", False, True),
    }


def test_they_are_not_nodes(lab: Winlab) -> None:
    names = lab.ok("kubectl", *ON, "--", "get", "nodes", "-o", "name").split()
    assert sorted(names) == ["node/controller-1", "node/node-1"]


def test_they_have_nothing_of_kubernetes(lab: Winlab) -> None:
    found = lab.ok("exec", "agent-1", *ON, "--", "ls /usr/bin/kubelet /usr/local/bin/kubelet 2>/dev/null; hostname")
    assert found.split() == ["agent-1"]
    assert "kubelet" not in lab("exec", "build-1", *ON, "--", r"dir /b C:\k").stdout
    assert lab.ok("exec", "build-1", *ON, "--", "hostname").strip() == "BUILD-1"
    assert lab.ok("exec", "build-1", *ON, "--via", "ssh", "--", "hostname").strip() == "BUILD-1"


def test_nodes_know_their_names(lab: Winlab) -> None:
    found = rows(lab)
    for name in ("agent-1", "build-1"):
        said = lab.ok("exec", "controller-1", *ON, "--", f"getent ahostsv4 {name}.{LAB}.winlab.internal")
        assert said.split()[0] == found[name]["address"]


def test_pods_reach_them_by_their_names(pods: Winlab) -> None:
    for where in ("agent-1:22", f"agent-1.{LAB}.winlab.internal:22", f"build-1.{LAB}.winlab.internal:5986"):
        until_connected(pods, where)


def test_the_host_reaches_them_from_outside(lab: Winlab) -> None:
    found = rows(lab)
    for name, port in (("agent-1", 22), ("build-1", 5986)):
        with socket.create_connection((found[name]["external"], port), timeout=60):
            pass


def test_readiness_is_about_the_cluster(lab: Winlab) -> None:
    (nodes,) = [row for row in lab.items("test", "readiness", *ON) if row["name"] == "R4"]
    assert nodes["detail"] == "2 nodes are Ready"


def test_a_second_run_changes_nothing(lab: Winlab, create: tuple[str, ...]) -> None:
    # the profile's routes are on the nodes, which are asked each time
    assert set(worked(lab.events(*create))) <= {"pod routes"}
    assert lab("diff", *ON).returncode == 0


def test_repair_brings_their_names_back(lab: Winlab, tmp_path: Path) -> None:
    whole = corefile(lab)
    patch = tmp_path / "patch.json"
    patch.write_text(json.dumps({"data": {"Corefile": whole.split("# winlab:")[0]}}))
    lab.ok(
        *("kubectl", *ON, "--", "patch", "configmap", "coredns", "-n", "kube-system"),
        *("--type=merge", f"--patch-file={patch}"),
    )
    drifts = results.items(lab("repair", *ON, "--check", "--output", "json").stdout)
    assert [row["what"] for row in drifts] == ["names of machines"]
    lab.ok("repair", *ON)
    assert corefile(lab) == whole


def test_one_more_and_one_less(pods: Winlab) -> None:
    pods.ok("node", "add", "agent", *ON)
    assert rows(pods)["agent-2"]["answers"]
    until_connected(pods, "agent-2:22")
    removed = pods.events("node", "remove", "agent-2", *ON)
    assert "drain agent-2" not in worked(removed)
    assert "agent-2" not in corefile(pods)
    assert "agent-2" not in rows(pods)


def test_they_stop_and_start(lab: Winlab) -> None:
    lab.ok("stop", "agent-1", *ON)
    assert rows(lab)["agent-1"]["state"] == "off"
    lab.ok("start", "agent-1", *ON)
    assert rows(lab)["agent-1"]["answers"]


def test_nothing_is_pushed_to_them(lab: Winlab) -> None:
    done = lab("push", "kubelet", "agent-1", "--restore", *ON)
    assert (done.returncode, "beside the cluster" in done.stderr) == (2, True), done.stderr


def test_destroy_leaves_nothing(before: Traces, lab: Winlab) -> None:
    lab.ok("destroy", *ON)
    assert added(before, traces(), LAB) == []
