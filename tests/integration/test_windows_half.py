"""The Windows half of flannel in an external cluster: which nodes get it, what it may do there, and when it goes.

The control plane is upstream's, with the flags of k3s. Its pods are made and never run: there are no kubelets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flagged
import plans
import pytest
import yaml
from flagged import Flagged
from test_identity import eventually

from winlab.adapters.kube import shared
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import spec
from winlab.design.cni.flannel import CONFIG_FOLDER, HALF_NAME, TOKEN_FOLDER
from winlab.design.cni.model import HALF
from winlab.design.plan import make
from winlab.design.plan.existing import ForeignCluster
from winlab.design.render import nodes
from winlab.errors import ClusterError

IN_KUBE_SYSTEM = "--namespace=kube-system"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flagged]:
    with flagged.running(tmp_path_factory.mktemp("half"), flagged.K3S) as made:
        yield made


@pytest.fixture(scope="module")
def admin(cluster: Flagged) -> Kubectl:
    kubectl = Kubectl(cluster.kubectl_program, cluster.admin)
    foreign = ForeignCluster(
        server=f"https://127.0.0.1:{cluster.port}", advertised=f"https://127.0.0.1:{cluster.port}",
        ca=cluster.servers.pem, version="v1.36.1", pod_cidr=flagged.PODS, service_cidr=flagged.SERVICES,
        dns="10.43.0.10", domain="cluster.local", cni=None, cni_note="", nodes=("cp",), kind="k3s", in_agents=True,
        overlays=frozenset({("vxlan", 4096)}),
    )  # fmt: skip
    wanted = spec.load("1-1-1", ["workers.os=windows-2022", "network.cni=flannel-vxlan"], environment={})
    objects = nodes.objects(make.make(wanted, "lab", plans.KVM, plans.stock(wanted), foreign))
    for name, labels in (("ours", {nodes.MACHINE: "one"}), ("theirs", {}), ("linux", {nodes.MACHINE: "two"})):
        system = "linux" if name == "linux" else "windows"
        labels = {**labels, "kubernetes.io/os": system}
        row = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        eventually(lambda row=row: kubectl.apply([row]))  # type: ignore[misc]
    eventually(lambda: kubectl.apply(objects))
    eventually(lambda: as_applied(kubectl, objects))
    return kubectl


def as_applied(admin: Kubectl, objects: list[dict[str, Any]]) -> None:
    """A controller may write a status while the API server compares."""
    if not admin.same(objects):
        raise ClusterError("The objects differ.")


def scheduled(admin: Kubectl) -> list[dict[str, Any]]:
    """The pods that the DaemonSet's controller has made."""
    status = admin.get("daemonset", HALF_NAME, IN_KUBE_SYSTEM).get("status") or {}
    rows: list[dict[str, Any]] = admin.get("pods", IN_KUBE_SYSTEM, f"--selector=app={HALF_NAME}")["items"]
    if not rows or status.get("desiredNumberScheduled") != len(rows):
        raise ClusterError(f"The controller is not done: {status}")
    return rows


def test_windows_nodes_of_labs_alone_get_it(admin: Kubectl) -> None:
    (pod,) = eventually(lambda: scheduled(admin))  # type: ignore[misc]
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["ours"]


def test_its_kubeconfig_and_its_rights(cluster: Flagged, admin: Kubectl) -> None:
    text = admin.get("configmap", HALF_NAME, IN_KUBE_SYSTEM)["data"]["kubeconfig"]
    assert yaml.safe_load(text)["clusters"][0]["cluster"]["server"] == f"https://127.0.0.1:{cluster.port}"
    folder = cluster.folder / "account"
    folder.mkdir()
    (folder / "ca.crt").write_text(cluster.servers.pem)
    (folder / "token").write_text(admin.run("create", "token", HALF_NAME, IN_KUBE_SYSTEM).strip())
    own = Kubectl(cluster.kubectl_program, cluster.kubeconfig_of(text.replace(TOKEN_FOLDER, str(folder)), "flannel"))
    assert {row["metadata"]["name"] for row in own.get("nodes")["items"]} == {"ours", "theirs", "linux"}
    assert own.run("auth", "can-i", "patch", "nodes", "--subresource=status").strip() == "yes"
    for words in (("get", "secrets", IN_KUBE_SYSTEM), ("label", "node", "ours", "a=b"), ("delete", "node", "ours")):
        with pytest.raises(ClusterError):
            own.run(*words)
    (container,) = admin.get("daemonset", HALF_NAME, IN_KUBE_SYSTEM)["spec"]["template"]["spec"]["containers"]
    assert f"--kubeconfig-file=C:{CONFIG_FOLDER}kubeconfig" in container["args"]


def test_it_goes_with_the_last_of_winlab_s_windows_nodes(admin: Kubectl) -> None:
    kinds = shared.KINDS
    shared.remove_unused(admin)
    assert len(admin.get(kinds, "--all-namespaces", f"--selector={HALF}")["items"]) == 5
    admin.run("delete", "node", "ours")
    shared.remove_unused(admin)
    shared.remove_unused(admin)
    assert admin.get(kinds, "--all-namespaces", f"--selector={HALF}")["items"] == []
