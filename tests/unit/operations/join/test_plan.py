"""The plan of workers for an external cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import plans
import pytest
from external import CLUSTER, REHEARSAL, kubelet_command, make

from winlab.design import cni, spec
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.cni.model import HALF, Lack
from winlab.design.plan import make as plan
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.render import nodes
from winlab.design.render.topology import topology
from winlab.errors import UsageError
from winlab.operations import join


def test_workers_alone() -> None:
    made = make(REHEARSAL, source="1-2-1")
    assert [(node.name, node.role, node.address) for node in made.nodes] == [
        ("node-1", "worker", "10.77.0.101"), ("node-2", "worker", "10.77.0.102"),
    ]  # fmt: skip
    assert made.joins
    assert not plans.make(plans.TCG, "1-1-1", REHEARSAL).joins
    cluster = made.cluster
    assert (cluster.endpoint, cluster.external, cluster.names) == ("192.0.2.10:6443", "192.0.2.10:6443", ())
    assert (cluster.pod_cidr, cluster.service_cidr) == ("10.200.0.0/16", "10.96.0.0/12")
    assert (cluster.dns, cluster.domain, cluster.profile) == ("10.96.0.10", "their.domain", "l3")
    assert topology(made).balancers == ()
    assert topology(made).discarded == ("10.96.0.0/12",)  # the cluster's own pods are outside, and can be reached


def test_a_prefix_names_machine_and_node() -> None:
    (node,) = make(REHEARSAL, "workers.name=win").nodes
    assert (node.name, node.domain) == ("win-1", "winlab-lab.win-1")
    assert node.windows is not None
    assert node.windows.computer_name == "WIN-1"  # join.ps1 compares the two
    for bad in ("Win", "a-very-long-name", "linux", "controller", "1", "", "x_"):
        with pytest.raises(UsageError, match="can't be called"):
            plan.check_prefix(bad)


def test_add_ons_are_refused_first() -> None:
    with pytest.raises(UsageError, match="joins an external cluster has no add-ons"):
        make("addons.metrics-server={}")


@pytest.mark.parametrize(
    ("server", "changes", "version"),
    [
        ("v1.36.1", (), "v1.36.3"),
        ("v1.35.9", (), "v1.35.4"),
        ("v1.39.0", (), "v1.37.2"),
        ("v1.36.1", ("kubernetes.version=1.35",), "v1.35.4"),
    ],
)
def test_the_kubelet_is_not_newer_than_the_server(server: str, changes: tuple[str, ...], version: str) -> None:
    made = make(REHEARSAL, *changes, cluster=replace(CLUSTER, version=server))
    assert made.cluster.versions.kubernetes == version


def test_the_kubelet_fits_the_windows_of_the_workers() -> None:
    made = make("workers.os=windows-2019", cluster=replace(CLUSTER, version="v1.36.1", cni="host-gw"))
    assert made.cluster.versions.kubernetes == "v1.34.4"


def test_the_log_runner_of_an_old_cluster_gets_no_flags_that_it_does_not_know() -> None:
    words = ("kubernetes.version=v1.33.4", "kubernetes.untested=true")
    made = make(REHEARSAL, *words, cluster=replace(CLUSTER, version="v1.33.4"))
    assert "--log-file-size" not in kubelet_command(made, "node-1")
    assert "--log-file-size" in kubelet_command(make(REHEARSAL), "node-1")


def test_a_server_older_than_all_that_is_known() -> None:
    with pytest.raises(UsageError, match="older than all"):
        make(REHEARSAL, cluster=replace(CLUSTER, version="v1.20.0"))


@pytest.mark.parametrize(
    ("theirs", "changes", "profile"),
    [
        ("calico-vxlan", ("workers.os=windows-2022",), "calico-vxlan"),
        (None, ("workers.os=windows-2022", "network.cni=host-gw"), "host-gw"),
        (None, ("workers.os=debian-13",), "elsewhere"),
        ("flannel-vxlan", ("workers.os=debian-13",), "flannel-vxlan"),
        (None, (REHEARSAL, "network.cni=host-gw"), "host-gw"),
    ],
)
def test_profile(theirs: str | None, changes: tuple[str, ...], profile: str) -> None:
    assert make(*changes, cluster=replace(CLUSTER, cni=theirs)).cluster.profile == profile


@pytest.mark.parametrize(
    ("theirs", "changes", "says"),
    [
        ("calico-vxlan", ("workers.os=windows-2022", "network.cni=l3"), "connected by calico-vxlan, not by l3"),
        (None, ("workers.os=windows-2022",), "does not know how that cluster connects"),
        ("calico-vxlan", (REHEARSAL,), "can't be rehearsed"),
        (None, (REHEARSAL, "network.cidr=10.200.0.0/24"), "overlap"),
    ],
)
def test_refused(theirs: str | None, changes: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(*changes, cluster=replace(CLUSTER, cni=theirs))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "cluster", "says"),
    [
        ((REHEARSAL,), {"allocates": False, "kind": "microk8s"}, "gives its nodes no pod networks, which l3 needs"),
        (("workers.os=debian-13",), {"in_agents": True, "kind": "k3s"}, "would connect the pods of a Linux node"),
    ],
)
def test_a_network_that_could_not_work_is_refused(changes: tuple[str, ...], cluster: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(*changes, cluster=replace(CLUSTER, **cluster))
    assert says in caught.value.what
    assert cluster["kind"] in caught.value.why
    make("workers.os=debian-13", "network.cni=l3", cluster=replace(CLUSTER, in_agents=True))


WINDOWS, FLANNEL = "workers.os=windows-2022", "network.cni=flannel-vxlan"
IN_AGENTS = replace(CLUSTER, kind="k3s", in_agents=True, proxies=(), overlays=frozenset({("vxlan", 4096)}))


def half_of(made: Plan) -> dict[str, Any]:
    return {row["kind"]: row for row in nodes.objects(made) if HALF in row["metadata"].get("labels", {})}


def test_windows_workers_bring_the_half_of_flannel_that_the_cluster_lacks() -> None:
    made = make(WINDOWS, FLANNEL, cluster=IN_AGENTS)
    half = half_of(made)
    assert set(half) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "DaemonSet"}
    pod = half["DaemonSet"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": nodes.MACHINE, "operator": "Exists"}]  # the user's may have flanneld
    assert "https://192.0.2.10:6443" in half["ConfigMap"]["data"]["kubeconfig"]
    windows = {one.reference for one in required.every(made) if isinstance(one, ContainerImage) and one.os == "windows"}
    assert pod["containers"][0]["image"] in windows
    assert "winlab adds those for Windows" in " ".join(join.notes(made, IN_AGENTS))


@pytest.mark.parametrize(
    ("changes", "cluster"),
    [
        ((WINDOWS,), {"cni": "flannel-vxlan", "own_half": ("kube-flannel-ds-windows",)}),
        (("workers.os=debian-13",), {"cni": "flannel-vxlan"}),
        ((WINDOWS, "network.cni=l3"), {}),
    ],
)
def test_where_it_is_not_needed_nothing_is_added(changes: tuple[str, ...], cluster: dict[str, Any]) -> None:
    made = make(*changes, cluster=replace(CLUSTER, **cluster))
    assert half_of(made) == {}
    assert "half" not in made.cluster.model_dump()


@pytest.mark.parametrize("theirs", [{("vxlan", 1)}, {("vxlan", 4096), ("vxlan", 1)}, {("wireguard", None)}])
def test_flannel_that_windows_can_t_speak_with_is_refused(theirs: set[tuple[str, int | None]]) -> None:
    with pytest.raises(UsageError, match="don't have the network that flannel-vxlan connects") as caught:
        make(WINDOWS, FLANNEL, cluster=replace(IN_AGENTS, overlays=frozenset(theirs)))
    assert "Windows needs vxlan, VNI 4096" in caught.value.why
    assert make(WINDOWS, "network.cni=l3", cluster=replace(IN_AGENTS, overlays=frozenset(theirs)))


def test_windows_workers_wait_for_what_the_cluster_s_network_lacks() -> None:
    lacks = (Lack("It has no DaemonSet.", "Apply one."), Lack("It lends addresses.", "Patch it."))
    lacking = replace(CLUSTER, cni="calico-vxlan", lacks=lacks)
    with pytest.raises(UsageError, match="no place for Windows nodes yet") as caught:
        make(WINDOWS, cluster=lacking)
    assert (caught.value.why, caught.value.cure) == (
        "It has no DaemonSet. It lends addresses.",
        "Apply one.\nPatch it.",
    )
    assert make("workers.os=debian-13", cluster=lacking).cluster.profile == "calico-vxlan"


def test_users_can_t_choose_the_elsewhere_profile() -> None:
    assert "elsewhere" not in cni.names()
    assert cni.get("elsewhere").support("2022").level == "refused"
    with pytest.raises(UsageError):
        spec.load("1-1-1", ["network.cni=elsewhere"])


def test_a_name_that_only_the_user_can_resolve() -> None:
    named = replace(CLUSTER, advertised="https://kind-control-plane:6443", server="https://192.0.2.10:6443")
    made = make(REHEARSAL, cluster=named)
    assert made.cluster.endpoint == "kind-control-plane:6443"
    records = topology(made).dns
    assert records["kind-control-plane"] == records["kind-control-plane.lab.winlab.internal"] == "192.0.2.10"
    assert made.alias == ("kind-control-plane", "192.0.2.10")
    assert make(REHEARSAL).alias is None
    assert plans.make(plans.TCG, "3-1-1", REHEARSAL).alias is None
    assert set(topology(make(REHEARSAL)).dns) == {"node-1", "node-1.lab.winlab.internal", "101.0.77.10.in-addr.arpa"}


def test_no_control_plane_and_no_manifests_are_obtained() -> None:
    every = required.every(
        make("workers.os=debian-13", "linux_workers.count=1", cluster=replace(CLUSTER, cni="calico-bgp"))
    )
    assert not [one for one in every if isinstance(one, Manifest)]
    images = {one.reference.split(":")[0].rpartition("/")[2] for one in every if isinstance(one, ContainerImage)}
    assert images == {"pause", "agnhost", "kube-proxy"}
    windows = required.every(make(REHEARSAL))
    assert {one.os for one in windows if isinstance(one, Program) and one.name != "kubectl"} == {"windows"}
    assert Program("kubectl", "v1.36.3", "linux") in windows
