"""The lab's cluster, made from Go modules: its Linux controller, and everything that users do with it."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess  # noqa: TID251 - reads what winlab wrote with tools of others
from pathlib import Path

import pytest
import yaml
from harness import LAB_A, Golden, Labs, Winlab, evidence, get, is_ready, nodes, text
from lxml import etree

from winlab.design.catalog import versions
from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.supply.artifacts import store
from winlab.supply.artifacts.bundle.file import open_bundle


def test_create_ends_with_a_ready_controller(labs: Labs) -> None:
    found = nodes(labs)
    node = found["controller-1"]
    assert is_ready(node), node["status"]["conditions"]
    info = node["status"]["nodeInfo"]
    assert info["kubeletVersion"] == versions.get().kubernetes
    assert info["containerRuntimeVersion"] == f"containerd://{versions.get().containerd}"
    for word in (*found, versions.get().kubernetes):
        assert word in labs.printed_a


def test_the_lab_came_from_the_bundle_alone(labs: Labs, bundle: Path) -> None:
    """Its create had an empty cache."""
    assert f"comes from bundle: '{bundle}'" in labs.said_a


def test_the_router_carries_the_routes_of_the_pods(labs: Labs) -> None:
    """Profile l3: each node's share by its address, and nothing else."""
    shares = {node["spec"]["podCIDR"]: name for name, node in nodes(labs).items()}
    routes = subprocess.run(
        ["ovn-nbctl", "--db=unix:/run/winlab/ovnnb.sock", "lr-route-list", f"winlab-{LAB_A}-router"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    found = {
        line.split()[0]: line.split()[1] for line in routes.splitlines() if "10.244." in line and "discard" not in line
    }
    addresses = {"controller-1": "10.77.0.11", "node-1": "10.77.0.101"}
    assert found == {share: addresses[name] for share, name in shares.items()}


def test_only_the_owner_can_read_the_kubeconfig(labs: Labs, state: Path) -> None:
    path = state / "labs" / LAB_A / "kubeconfig"
    assert path.stat().st_mode & 0o777 == 0o600
    printed = yaml.safe_load(text(labs.a("kubeconfig")))
    assert printed == yaml.safe_load(path.read_text())
    assert printed["current-context"] == f"winlab-{LAB_A}"


def test_kubeconfig_is_merged_and_the_rest_left_alone(labs: Labs, winlab: Winlab, tmp_path: Path) -> None:
    own = tmp_path / "config"
    own.write_text(
        "# mine\napiVersion: v1\nkind: Config\ncurrent-context: mine\ncontexts:\n- name: mine\n  context: {}\n"
    )
    user = Winlab(env={**winlab.env, "KUBECONFIG": str(own)})
    user.ok("kubeconfig", "--lab", LAB_A, "--merge")
    merged = yaml.safe_load(own.read_text())
    assert merged["current-context"] == "mine"
    assert [row["name"] for row in merged["contexts"]] == ["mine", f"winlab-{LAB_A}"]
    kubectl = Path(winlab.env["WINLAB_STATE"]) / "labs" / LAB_A / "kubectl"
    done = subprocess.run(
        # /readyz would answer anonymous callers, too, and with "no" where etcd is slow
        [kubectl, "--context", f"winlab-{LAB_A}", "auth", "whoami", "--output=jsonpath={.status.userInfo.username}"],
        env={**os.environ, "KUBECONFIG": str(own)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "kubernetes-admin", done.stderr


def test_readiness(labs: Labs, winlab: Winlab, tmp_path: Path) -> None:
    report = tmp_path / "readiness.xml"
    printed = winlab.ok("test", "readiness", "--lab", LAB_A, "--junit", str(report))
    assert "R1" in printed
    suite = etree.parse(report).getroot()
    assert suite.xpath("count(//failure)") == 0
    assert suite.xpath("count(//testcase)") > 5


@pytest.mark.slow  # the add-on takes minutes, and makes the whole lab slower
def test_metrics_server_measures_the_linux_nodes(labs: Labs, winlab: Winlab, metrics_server: str) -> None:
    """An add-on, from the spec to the bundle to the cluster. The stand-in has nothing to measure."""
    words = ("test", "readiness", "--lab", LAB_A, "--only", metrics_server)
    rows = {row["name"]: row for row in winlab.items(*words)}
    assert rows["metrics-server"]["outcome"] == "passed", rows
    assert "controller-1: CPU " in rows["metrics-server"]["detail"]
    assert rows["metrics-server-2"]["outcome"] == "not-in-a-rehearsal"
    usage = text(labs.a("kubectl", "--", "top", "nodes", "--no-headers"))
    assert usage.split()[0] == "controller-1"


def test_smoke(labs: Labs, winlab: Winlab, tmp_path: Path) -> None:
    """Pods and services on Linux; the rows for Windows' own kernel say that there is none."""
    report = tmp_path / "smoke.xml"
    found = winlab.items("test", "smoke", "--lab", LAB_A, "--junit", str(report))
    rows = {row["name"]: row["outcome"] for row in found}
    assert {rows[name] for name in ("L4", "L5", "L6", "L7", "L11")} == {"passed"}, rows
    assert {rows[name] for name in ("N1", "N2", "N3", "N4", "N6", "N8")} == {"passed"}, rows
    assert rows["1"] == rows["4"] == "not-in-a-rehearsal"
    assert etree.parse(report).getroot().xpath("count(//failure)") == 0


@pytest.mark.slow  # two minutes; unit tests cover push, and tests/powershell its script
def test_a_program_is_swapped_and_comes_back(labs: Labs, tmp_path: Path) -> None:
    """A kubelet.exe of the user: a Windows program still runs when something is appended to it."""
    wanted = Program("kubelet", versions.get().kubernetes, "windows")  # older ones are in the cache, too
    originals = [entry.obtained for entry in store.entries() if entry.obtained.artifact == wanted]
    mine = tmp_path / "kubelet.exe"
    mine.write_bytes(originals[0].path.read_bytes() + b"\nmine")
    assert _sha256(mine) in text(labs.a("push", str(mine), "node-1"))
    done = labs.a("push", "kubelet.exe", "node-1", "--restore")
    assert done.returncode == 0, f"{done.stderr}\n{evidence(labs, 'node-1')}"
    restored = done.stdout
    assert any(original.sha256 in restored for original in originals)
    assert "It is Ready" in restored


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_a_program_for_the_wrong_system_is_refused(labs: Labs, tmp_path: Path) -> None:
    wrong = tmp_path / "kubelet.exe"
    wrong.write_bytes(Path("/bin/true").read_bytes())
    done = labs.a("push", str(wrong), "node-1")
    assert done.returncode == 2, done.stderr
    assert "kubelet.exe" in done.stderr


def test_an_image_of_the_user_is_loaded(labs: Labs) -> None:
    name = "example.test/mine:v1"
    archive = next(
        entry.obtained.path
        for entry in store.entries()
        if isinstance(image := entry.obtained.artifact, ContainerImage)
        and (image.os, "/pause:" in image.reference) == ("linux", True)
    )
    assert name in text(labs.a("load", str(archive), "--name", name))
    images = text(labs.a("exec", "controller-1", "--", "sudo ctr -n k8s.io images ls -q"))
    assert name in images.splitlines()


def test_locked(
    labs: Labs, scripted: Winlab, golden: Golden, bundle: Path, add_ons: tuple[str, ...], tmp_path: Path
) -> None:
    """A lock made from the bundle holds for the lab that came from it; a drift is refused, and named."""
    spec, lock = tmp_path / "lab.yaml", tmp_path / "winlab.lock"
    spec.write_text(yaml.safe_dump({"workers": {"count": 1}, "addons": {name: {} for name in add_ons}}))
    digest = f"sha256:{open_bundle(bundle).digest}"
    words = ("--spec", str(spec), "--rehearse", *golden.flags, "--bundle", str(bundle), "--bundle-digest", digest)
    scripted.ok("lock", *words)
    scripted.ok("lock", *words, "--check")
    scripted.ok("create", *words, "--locked", "--lab", LAB_A)
    locked = yaml.safe_load(lock.read_text())
    changed = next(
        row for row in locked["programs"] if (row["os"], row["name"].startswith("kubelet")) == ("windows", True)
    )
    lock.write_text(lock.read_text().replace(changed["sha256"], "f" * 64))
    done = scripted("create", *words, "--locked", "--lab", LAB_A)
    assert done.returncode == 6, done.stderr
    assert changed["name"] in done.stderr


def test_secrets_of_the_join_are_in_no_log(labs: Labs, state: Path) -> None:
    journal = (state / "labs" / LAB_A / "journal.jsonl").read_text()
    assert not re.search(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b", journal)  # those of the joins are revoked by now
    minted = get(labs, "secrets", "--namespace=kube-system")["items"]
    tokens = [row for row in minted if row["type"] == "bootstrap.kubernetes.io/token"]
    assert tokens  # that of "kubeadm init"
    values = [base64.b64decode(row["data"]["token-secret"]).decode() for row in tokens]
    assert not [value for value in values if value in journal]
    # in brackets: sudo itself logs its command lines
    patterns = " ".join(f"-e {value[:-1]}[{value[-1]}]" for value in values)
    command = f"sudo grep -rlE {patterns} /var/log /etc /run/winlab /var/lib/winlab /var/lib/kubelet; echo end"
    assert text(labs.a("exec", "controller-1", "--", command)) == "end\n"
