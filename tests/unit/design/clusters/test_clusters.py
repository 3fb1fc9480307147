"""Distributions of external clusters: how they are recognized, what each has, and the verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from winlab.design.clusters import known, verdict
from winlab.design.clusters.model import Ends, Reach, Seen, SeenNode
from winlab.design.cni.calico import existing
from winlab.design.cni.model import Unreadable

DOCS = Path(__file__).resolve().parents[4] / "docs" / "join"
VERSION = "v1.36.1"
ENDS = Ends("10.77.0.0/24")
K3S_ARGS, RKE2_ARGS = "k3s.io/node-args", "rke2.io/node-args"
OPEN, TUNNEL = '["server","--egress-selector-mode","disabled"]', '["server","--disable","traefik"]'


def node(name: str = "cp", **more: object) -> SeenNode:
    return SeenNode(name, **more)  # type: ignore[arg-type]


SEEN = {
    "kubeadm": Seen(VERSION, (node(),), kubeadm=True),
    "kind": Seen(VERSION, (node(provider="kind://docker/kind/kind-control-plane"),), kubeadm=True),
    "minikube": Seen(VERSION, (node(labels={"minikube.k8s.io/version": "v1.38.1"}),), kubeadm=True),
    "k3s": Seen(f"{VERSION}+k3s1", (node(annotations={K3S_ARGS: TUNNEL}),)),
    "rke2": Seen(f"{VERSION}+rke2r1", (node(annotations={RKE2_ARGS: TUNNEL}),)),
    "microk8s": Seen(VERSION, (node(labels={"microk8s.io/cluster": "true"}),), rbac=False),
    "k0s": Seen(f"{VERSION}+k0s", (node(),)),
    "other": Seen(VERSION, (node(image="Talos (v1.13.0)"),)),
}
LINUX, BOTH = ("linux",), ("linux", "windows")
COLUMNS = "authorization restricts two_cas verifies kubelets tokens allocates pods services port proxies"
# as the projects' sources have it; in tests/integration/test_identity.py control planes run with these flags
TABLE = {
    "kubeadm": ("Node,RBAC", True, False, False, "direct", True, True, "10.244.0.0/16", "10.96.0.0/12", 6443, LINUX),
    "kind": ("Node,RBAC", True, False, False, "direct", True, True, "10.244.0.0/16", "10.96.0.0/16", 6443, LINUX),
    "minikube": ("Node,RBAC", True, False, False, "direct", True, True, "10.244.0.0/16", "10.96.0.0/12", 8443, LINUX),
    "k3s": ("Node,RBAC", True, True, True, "tunnel", True, True, "10.42.0.0/16", "10.43.0.0/16", 6443, ()),
    "rke2": ("Node,RBAC", True, True, True, "tunnel", True, True, "10.42.0.0/16", "10.43.0.0/16", 6443, ()),
    "microk8s": (
        "AlwaysAllow", False, False, True, "direct", False, False, "10.1.0.0/16", "10.152.183.0/24", 16443, (),
    ),
    "k0s": ("Node,RBAC", True, False, True, "agents", True, True, "10.244.0.0/16", "10.96.0.0/12", 6443, BOTH),
}  # fmt: skip


@pytest.mark.parametrize("name", SEEN)
def test_it_is_recognized(name: str) -> None:
    assert known.of(SEEN[name]).name == name


@pytest.mark.parametrize("name", TABLE)
def test_what_it_has(name: str) -> None:
    facts = known.get(name).facts
    assert {column: getattr(facts, column) for column in COLUMNS.split()} == dict(
        zip(COLUMNS.split(), TABLE[name], strict=True)
    )


def test_each_has_a_row_a_page_and_a_need() -> None:
    assert {kind.name for kind in known.every()} == set(TABLE)
    for kind in known.every():
        assert kind.needs
        assert (DOCS / f"{kind.name}.md").is_file()


def test_the_ca_s_differ_where_the_flags_do() -> None:
    assert [kind.name for kind in known.every() if kind.facts.two_cas] == ["rke2", "k3s"]


# -- the verdict


def levels(
    seen: Seen, reach: tuple[Reach, ...] = (Reach("192.0.2.10:6443"),), *, windows: bool = False
) -> dict[str, tuple[str, str, str]]:
    rows = verdict.findings(seen, ENDS, reach, windows=windows)
    return {row.about: (row.level, row.says, row.cure) for row in rows}


FIT = {"profile": "calico-vxlan", "network": "Calico with VXLAN"}


@pytest.mark.parametrize(
    ("seen", "about", "level", "says"),
    [
        (SEEN["kubeadm"], "distribution", "ok", "kubeadm"),
        (SEEN["kind"], "distribution", "ok", "kind"),
        (SEEN["k3s"], "distribution", "ok", "k3s, v1.36.1+k3s1, 1 nodes"),
        (replace(SEEN["kubeadm"], **FIT), "pod network", "change", "calico-vxlan"),
        (SEEN["kubeadm"], "pod network", "change", "does not know"),
        (replace(SEEN["kubeadm"], daemon_sets={"cilium": "kube-system"}), "pod network", "change", "Cilium"),
        (replace(SEEN["kind"], daemon_sets={"kindnet": "kube-system"}), "pod network", "refused", "kindnet"),
        (replace(SEEN["minikube"], daemon_sets={"kindnet": "kube-system"}), "pod network", "refused", "kindnet"),
        (SEEN["k3s"], "logs and exec", "change", "egress-selector-mode is not disabled"),
        (replace(SEEN["k3s"], nodes=(node(),)), "logs and exec", "change", "egress-selector-mode can't be read"),
        (replace(SEEN["k3s"], nodes=(node(annotations={K3S_ARGS: OPEN}),)), "logs and exec", "ok", "directly"),
        (SEEN["rke2"], "logs and exec", "change", "rke2's tunnel"),
        (replace(SEEN["rke2"], nodes=(node(annotations={RKE2_ARGS: OPEN}),)), "logs and exec", "ok", "directly"),
        (SEEN["k0s"], "logs and exec", "change", "konnectivity"),
        (SEEN["k0s"], "DaemonSets for Windows", "warning", "kube-proxy-windows"),
        (SEEN["microk8s"], "roles (RBAC)", "warning", "may do anything"),
        (replace(SEEN["microk8s"], rbac=True), "a node's rights", "warning", "NodeRestriction"),
        (replace(SEEN["kubeadm"], version="v1.20.1"), "version", "refused", "knows no kubelet"),
        (replace(SEEN["kubeadm"], version="nonsense"), "version", "refused", "knows no kubelet"),
        (replace(SEEN["kubeadm"], version="v1.36.1"), "version", "ok", "kubelet v1.36"),
        (replace(SEEN["kubeadm"], lacking=("bind roles",)), "credentials", "refused", "bind roles"),
        (replace(SEEN["kubeadm"], eager=("agent",)), "DaemonSets", "warning", "agent"),
        (SEEN["kubeadm"], "the API reaches workers", "change", "no logs and no exec"),
        (SEEN["k3s"], "kubelets' certificates", "ok", "verifies them"),
        (SEEN["kubeadm"], "kubelets' certificates", "ok", "does not verify"),
    ],
)  # fmt: skip
def test_a_row(seen: Seen, about: str, level: str, says: str) -> None:
    found = levels(seen)[about]
    assert (found[0], says in found[1]) == (level, True), found
    assert bool(found[2]) == (level != "ok")


OPERATED, APPLIED = {"calico-node": "calico-system"}, {"calico-node": "kube-system"}
STRICT = [{"metadata": {"name": "default"}, "spec": {"strictAffinity": True}}]
LENT = [{"metadata": {"name": "default"}, "spec": {"strictAffinity": False}}]
ELSEWHERE = [{"metadata": {"name": "rancher-config"}, "spec": {"strictAffinity": True}}]  # Calico reads 'default' alone


@pytest.mark.parametrize(
    ("name", "daemon_sets", "ipam", "cures"),
    [
        ("kubeadm", OPERATED, STRICT, ["windowsDataplane"]),
        ("kubeadm", OPERATED, LENT, ["kubectl patch ipamconfigs", "windowsDataplane"]),
        ("kubeadm", {**OPERATED, "calico-node-windows": "calico-system"}, STRICT, []),
        ("microk8s", APPLIED, [], ["IPAMConfig", "cni-windows"]),
        ("microk8s", APPLIED, Unreadable("forbidden"), ["IPAMConfig", "cni-windows"]),
        ("microk8s", {**APPLIED, "calico-node-windows": "kube-system"}, LENT, ["kubectl patch ipamconfigs"]),
        ("rke2", OPERATED, ELSEWHERE, ["IPAMConfig", "HelmChartConfig"]),
        ("rke2", OPERATED, STRICT, ["cni: flannel"]),
        ("k0s", APPLIED, [], []),
    ],
)
def test_what_calico_lacks_for_windows(
    name: str, daemon_sets: dict[str, str], ipam: list[dict[str, object]] | Unreadable, cures: list[str]
) -> None:
    seen = replace(SEEN[name], **FIT, daemon_sets=daemon_sets, lacks=existing.lacks(daemon_sets, ipam))
    rows = [row for row in verdict.findings(seen, ENDS, (), windows=True) if row.about == "pods on Windows"]
    assert [row.level for row in rows] == ["refused"] * len(cures)
    for row, cure in zip(rows, cures, strict=True):
        assert cure in row.cure
    assert "pods on Windows" not in levels(seen)  # Linux workers need none of it


def test_k0s_adds_calico_for_windows_with_vxlan_alone() -> None:
    seen = replace(SEEN["k0s"], profile="calico-bgp", daemon_sets=APPLIED)
    assert "calico.mode: vxlan" in levels(seen, windows=True)["pods on Windows"][2]


def test_the_commands_are_what_kubectl_takes() -> None:
    (strict, operator) = existing.lacks(OPERATED, [])
    assert json.loads(strict.cure.split("'")[1])["spec"]["strictAffinity"] is True
    assert json.loads(operator.cure.split("'")[1])["spec"]["calicoNetwork"] == {"windowsDataplane": "HNS"}


def flannel(backend: str, vni: object) -> tuple[SeenNode, ...]:
    data = json.dumps({"VNI": vni, "VtepMAC": "0a:00:00:00:00:01"})
    start = "flannel.alpha.coreos.com/backend-"
    return (node(annotations={f"{start}type": backend, f"{start}data": data}),)


@pytest.mark.parametrize(
    ("name", "nodes", "level", "says", "cure"),
    [
        ("k3s", flannel("vxlan", 1), "change", "VNI 1", "flannel-conf"),
        ("rke2", flannel("vxlan", 1), "change", "VNI 1", "HelmChartConfig"),
        ("kubeadm", flannel("vxlan", 1), "change", "VNI 1", "kube-flannel-cfg"),
        ("k3s", flannel("vxlan", 4096), "warning", "port", "4789|flannel-vxlan"),
        ("k3s", flannel("host-gw", None), "change", "one network", "network.cni=l3"),
        ("k3s", flannel("wireguard", None), "change", "VNI unknown", "flannel-conf"),
        ("k3s", flannel("vxlan", "x"), "change", "VNI unknown", "flannel-conf"),
    ],
)
def test_flannel_is_known_by_what_its_nodes_publish(
    name: str, nodes: tuple[SeenNode, ...], level: str, says: str, cure: str
) -> None:
    seen = replace(SEEN[name], nodes=(*SEEN[name].nodes, *nodes))
    found = levels(seen)["pod network"]
    assert found[0] == level
    assert says in found[1]
    assert any(one in found[2] for one in cure.split("|"))


def test_annotations_that_are_nonsense_are_none() -> None:
    for text in ("", "{", "7", "[" * 4000, "null", '{"VNI": 1}'):
        nodes = (node(annotations={K3S_ARGS: text, "flannel.alpha.coreos.com/backend-type": "vxlan",
                                   "flannel.alpha.coreos.com/backend-data": text}),)  # fmt: skip
        assert levels(replace(SEEN["k3s"], nodes=nodes))["logs and exec"][0] == "change"


def test_reach() -> None:
    seen, about = SEEN["kubeadm"], "workers reach the API"
    assert levels(seen)[about][0] == "ok"
    assert levels(seen, ())[about][0] == "refused"
    assert levels(seen, (Reach("192.0.2.10:6443", "timed out"),))[about][:2] == (
        "refused", "192.0.2.10:6443: timed out.",
    )  # fmt: skip
    one, other = Reach("192.0.2.10:6443"), Reach("172.18.0.2:6443", "timed out")
    rows = verdict.findings(seen, ENDS, (one, other))
    assert [row.level for row in rows if row.about == about] == ["ok", "change"]
    assert verdict.refusals(rows) == []
    here = levels(seen, (Reach("192.0.2.10:6443", here=True),))[about]
    assert (here[0], here[2]) == ("change", "Add --set network.reach=all.")


def test_the_whole_verdict_of_a_cluster_that_is_fit() -> None:
    seen = replace(SEEN["kubeadm"], **FIT)
    reach = (Reach("192.0.2.10:6443"),)
    (pods,) = [row for row in verdict.findings(seen, ENDS, reach) if row.about == "pod network"]
    assert (pods.level, pods.cure) == ("change", "Add --attachment routed, or attached.")
    rows = verdict.findings(seen, replace(ENDS, attachment="routed"), reach)
    assert [(row.about, row.level) for row in rows] == [
        ("distribution", "ok"),
        ("version", "ok"),
        ("credentials", "ok"),
        ("roles (RBAC)", "ok"),
        ("workers reach the API", "ok"),
        ("the API reaches workers", "change"),
        ("pod network", "ok"),
        ("kubelets' certificates", "ok"),
    ]
    (way,) = [row for row in rows if row.about == "the API reaches workers"]
    assert "ip route add 10.77.0.0/24 via" in way.cure
