"""A real cluster of two Linux nodes, made from Go modules, and everything that people do with it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess  # noqa: TID251 - reads what winlab wrote with tools of others
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import Winlab, traces
from lxml import etree

LAB = "it-k"
SPEC = ("--spec", "1-0-1", "--set", "linux_workers.count=1")
Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Cluster:
    """The command for the lab, and what creating it printed."""

    a: Run
    printed: str


@pytest.fixture(scope="module")
def labs(host: None, winlab: Winlab) -> Iterator[Cluster]:
    winlab.ok("destroy", "--lab", LAB)
    before = traces()
    printed = winlab.ok("create", *SPEC, "--lab", LAB)
    yield Cluster(lambda command, *args: winlab(command, "--lab", LAB, *args), printed)
    winlab.ok("destroy", "--lab", LAB)
    assert traces() == before


def text(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, f"{done.args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def get(labs: Cluster, *words: str) -> Any:
    return json.loads(text(labs.a("kubectl", "--", "get", *words, "--output=json")))


def nodes(labs: Cluster) -> dict[str, Any]:
    return {row["metadata"]["name"]: row for row in get(labs, "nodes")["items"]}


def test_create_ends_with_a_ready_hybrid_cluster(labs: Cluster) -> None:
    found = nodes(labs)
    assert set(found) == {"controller-1", "linux-1"}
    for name, node in found.items():
        ready = {row["type"]: row["status"] for row in node["status"]["conditions"]}["Ready"]
        assert ready == "True", f"{name}: {node['status']['conditions']}"
        info = node["status"]["nodeInfo"]
        assert info["kubeletVersion"] == "v1.36.3"
        assert info["containerRuntimeVersion"] == "containerd://2.3.7"
    for name in found:
        assert name in labs.printed
    assert "v1.36.3" in labs.printed


def test_no_admin_credential_is_on_a_worker(labs: Cluster) -> None:
    """What the workers hold was signed for the node itself; tokens are gone."""
    linux = text(labs.a("exec", "linux-1", "--", "sudo", "find", "/etc/kubernetes", "/run/winlab", "-type", "f"))
    assert "admin.conf" not in linux
    assert "bootstrap" not in linux
    assert "kubeadm.yaml" not in linux
    allowed = labs.a(
        "exec", "linux-1", "--", "sudo kubectl --kubeconfig /etc/kubernetes/kubelet.conf auth can-i '*' '*'"
    )
    assert "yes" not in allowed.stdout


def test_the_router_carries_the_routes_of_the_pods(labs: Cluster) -> None:
    """Profile l3: each node's share by its address, and nothing else."""
    shares = {node["spec"]["podCIDR"]: name for name, node in nodes(labs).items()}
    routes = subprocess.run(
        ["ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "lr-route-list", f"winlab-{LAB}-router"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = {line.split()[0]: line.split()[1] for line in routes.splitlines() if "10.244." in line}
    addresses = {"controller-1": "10.77.0.11", "linux-1": "10.77.0.51"}
    assert found == {share: addresses[name] for share, name in shares.items()}


def test_the_kubeconfig_is_the_owner_s_alone(labs: Cluster, state: Path) -> None:
    path = state / "labs" / LAB / "kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    printed = yaml.safe_load(text(labs.a("kubeconfig")))
    assert printed == yaml.safe_load(path.read_text())
    assert printed["current-context"] == f"winlab-{LAB}"


def test_kubeconfig_is_merged_and_the_rest_left_alone(labs: Cluster, winlab: Winlab, tmp_path: Path) -> None:
    own = tmp_path / "config"
    own.write_text(
        "# mine\napiVersion: v1\nkind: Config\ncurrent-context: mine\ncontexts:\n- name: mine\n  context: {}\n"
    )
    user = Winlab(env={**winlab.env, "KUBECONFIG": str(own)})
    user.ok("kubeconfig", "--lab", LAB, "--merge")
    merged = yaml.safe_load(own.read_text())
    assert merged["current-context"] == "mine"
    assert [row["name"] for row in merged["contexts"]] == ["mine", f"winlab-{LAB}"]
    kubectl = Path(winlab.env["WINLAB_STATE"]) / "labs" / LAB / "kubectl"
    done = subprocess.run(
        [kubectl, "--context", f"winlab-{LAB}", "get", "--raw=/readyz"],
        env={**os.environ, "KUBECONFIG": str(own)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "ok", done.stderr


def test_readiness(labs: Cluster, tmp_path: Path) -> None:
    report = tmp_path / "readiness.xml"
    printed = text(labs.a("test", "readiness", "--junit", str(report)))
    assert "R1" in printed
    suite = etree.parse(report).getroot()
    assert suite.xpath("count(//failure)") == 0
    assert suite.xpath("count(//testcase)") > 5


def test_smoke(labs: Cluster, tmp_path: Path) -> None:
    """Pods on two Linux nodes talk both ways; the rows for Windows say that there is none."""
    report = tmp_path / "smoke.xml"
    printed = text(labs.a("test", "smoke", "--output", "json", "--junit", str(report)))
    rows = {row["id"]: row["outcome"] for row in json.loads(printed)["results"]}
    assert {rows[name] for name in ("L1", "L2", "L4", "L5", "L6", "L7", "L8", "L11", "L12")} == {"passed"}, rows
    assert rows["1"] == "not-applicable"
    assert etree.parse(report).getroot().xpath("count(//failure)") == 0


def test_a_program_is_swapped_and_comes_back(labs: Cluster, tmp_path: Path) -> None:
    """A kubelet of one's own: an ELF file does not mind what is appended to it."""
    original = text(labs.a("exec", "linux-1", "--", "sha256sum /usr/local/bin/kubelet")).split()[0]
    mine = tmp_path / "kubelet"
    fetched = subprocess.run(["find", "/root/.cache/winlab/artifacts/files", "-name", "kubelet"], capture_output=True,
                             text=True, check=True).stdout.split()  # fmt: skip
    source = next(Path(path) for path in fetched if _sha256(Path(path)) == original)
    mine.write_bytes(source.read_bytes() + b"\nmine")
    text(labs.a("push", str(mine), "linux-1"))
    assert text(labs.a("exec", "linux-1", "--", "sha256sum /usr/local/bin/kubelet")).split()[0] == _sha256(mine)
    text(labs.a("push", "kubelet", "linux-1", "--restore"))
    assert text(labs.a("exec", "linux-1", "--", "sha256sum /usr/local/bin/kubelet")).split()[0] == original


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_program_for_the_wrong_system_is_refused(labs: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "kubelet.exe"
    wrong.write_bytes(Path("/bin/true").read_bytes())
    done = labs.a("push", str(wrong), "linux-1")
    assert done.returncode == 2, done.stderr
    assert "kubelet.exe" in done.stderr


def test_logs_of_both_systems(labs: Cluster) -> None:
    printed = text(labs.a("logs", "--lines", "5"))
    for part in ("controller-1", "linux-1", "kubelet", "containerd"):
        assert part in printed


def test_secrets_of_the_join_are_in_no_log(labs: Cluster, state: Path) -> None:
    journal = (state / "labs" / LAB / "journal.jsonl").read_text()
    minted = get(labs, "secrets", "--namespace=kube-system")["items"]
    for row in minted:
        if row["type"] == "bootstrap.kubernetes.io/token":
            value = base64.b64decode(row["data"]["token-secret"]).decode()
            assert value not in journal
            command = f"sudo grep -rl {value} /var/log /etc /run/winlab /var/lib/winlab /var/lib/kubelet"
            assert labs.a("exec", "linux-1", "--", command).stdout == ""


def test_create_again_changes_nothing(labs: Cluster, winlab: Winlab) -> None:
    done = winlab("create", *SPEC, "--lab", LAB, "--output", "json")
    assert done.returncode == 0, done.stderr
    kinds = {event["step"]: event["kind"] for event in map(json.loads, done.stdout.splitlines()) if event["step"]}
    assert set(kinds.values()) == {"skipped"}, kinds
