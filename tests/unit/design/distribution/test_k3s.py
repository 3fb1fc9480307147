"""Controllers by k3s: its flags, what nodes get, its releases, and what is refused."""

from __future__ import annotations

import re

import external
import plans
import pytest

from winlab.design import spec
from winlab.design.catalog import releases, versions
from winlab.design.distribution import known
from winlab.design.distribution.k3s import calls, dns, files
from winlab.design.plan import changes, cluster, required
from winlab.design.plan import make as planning
from winlab.design.plan.model import Plan
from winlab.design.render import nodes
from winlab.design.render.linux import LinuxFiles
from winlab.design.render.windows import WindowsFiles
from winlab.errors import UsageError

K3S = known.BY_NAME["k3s"]
WANTED = "kubernetes.distribution=k3s"
# github.com/k3s-io/k3s pkg/cli/cmds/server.go (005499a) and agent.go (00cc29b), which a server has, too
FLAGS = {
    *("advertise-address", "cluster-cidr", "cluster-dns", "cluster-domain", "container-runtime-endpoint", "disable"),
    *("disable-cloud-controller", "disable-helm-controller", "disable-network-policy", "egress-selector-mode"),
    *("flannel-backend", "https-listen-port", "kube-controller-manager-arg", "kube-scheduler-arg", "kubelet-arg"),
    *("node-ip", "node-label", "node-name", "node-taint", "resolv-conf", "service-cidr", "tls-san"),
}


def made(*changes: str, source: str = "1-0-1") -> Plan:
    return plans.make(plans.KVM, source, WANTED, *changes)


def flags(plan: Plan, number: int = 0) -> list[tuple[str, str]]:
    """The flags of a controller's k3s, by name and value."""
    prepared = LinuxFiles(plan, plan.linux_nodes()[number]).prepare()
    text = prepared.files[files.UNIT_FILE].content
    command = re.search(r"^ExecStart=/usr/local/bin/k3s server \\\n((?:  .+\n)+)KillMode", text, re.MULTILINE)
    assert command is not None
    words = [line.strip().removesuffix(" \\") for line in command[1].splitlines()]
    assert not [word for word in words if re.search(r"[\s'\"%$\\]", word)]  # systemd would read them in its own way
    return [(name.removeprefix("--"), value) for name, _, value in (word.partition("=") for word in words)]


@pytest.mark.parametrize("facts", [plans.KVM, plans.TCG], ids=["kvm", "emulated"])
def test_k3s_gets_flags_that_it_has(facts: plans.HostFacts) -> None:
    names = [name for name, _ in flags(plans.make(facts, "3-1-1", WANTED))]
    assert set(names) <= FLAGS
    assert len({*names}) < len(names)  # some are repeated
    assert ("kube-scheduler-arg" in names) is (facts is plans.TCG)


def test_networks_and_names_are_those_of_the_plan() -> None:
    plan = made("kubernetes.pod_cidr=10.200.0.0/16", "kubernetes.service_cidr=10.112.0.0/16", source="3-0-1")
    found = flags(plan, 1)
    assert (
        dict(found).items()
        >= {
            "cluster-cidr": "10.200.0.0/16",
            "service-cidr": "10.112.0.0/16",
            "cluster-dns": "10.112.0.10",
            "node-name": "controller-2",
            "node-ip": "10.77.0.12",
            "advertise-address": "10.77.0.12",
        }.items()
    )
    assert [value for name, value in found if name == "tls-san"] == list(plan.cluster.names)


@pytest.mark.parametrize("profile", ["l3", "host-gw", "calico-vxlan", "flannel-vxlan"])
def test_every_cni_profile_connects_the_pods(profile: str) -> None:
    """k3s brings no network of its own, and uses winlab's containerd: files of the profile are where it reads them."""
    plan = made(f"network.cni={profile}", source="1-1-1")
    assert ("flannel-backend", "none") in flags(plan)
    other = plans.make(plans.KVM, "1-1-1", f"network.cni={profile}", "kubernetes.version=1.36")
    assert nodes.objects(plan) == nodes.objects(other)


def test_controllers_leave_pods_to_linux_workers_as_in_other_labs() -> None:
    assert dict(flags(made("linux_workers.count=1", source="1-1-1")))["node-taint"] == files.TAINT
    assert "node-taint" not in dict(flags(made()))


def test_the_first_controller_makes_the_cluster_and_the_others_join_it() -> None:
    plan = made(source="3-0-1")
    settings = nodes.cluster(plan)
    first, second = (
        K3S.linux_call(settings, nodes.member(plan, node), first=number == 0)
        for number, node in enumerate(plan.linux_nodes()[:2])
    )
    assert isinstance(first, calls.RunK3s)
    assert isinstance(second, calls.RunK3s)
    assert (first.server, first.token) == ("", "")
    assert (second.server, second.token) == ("https://10.77.0.10:6443", calls.PLACEHOLDER)


def test_workers_become_nodes_as_those_of_an_external_cluster() -> None:
    plan = made("linux_workers.count=1", source="1-1-1")
    settings, (worker,) = nodes.cluster(plan), [one for one in plan.linux_nodes() if one.role == "worker"]
    member = nodes.member(plan, worker)
    assert K3S.linux_files(settings, member) == known.EXTERNAL.linux_files(settings, member)
    windows = plan.windows_nodes()[0]
    own = nodes.member(plan, windows)
    assert K3S.windows_call(settings, own) == known.EXTERNAL.windows_call(settings, own)
    assert "--bootstrap-kubeconfig" not in WindowsFiles(plan, windows).kubelet().command
    assert plan.cluster.identifies
    assert not plans.make(plans.KVM, "1-1-1").cluster.identifies


def test_nothing_of_a_control_plane_is_downloaded_but_k3s() -> None:
    plan = made("network.cni=l3", "linux_workers.count=1", source="1-1-1")
    every = [str(one) for one in required.every(plan)]
    assert "k3s v1.36.3+k3s1 (linux)" in every
    assert not [name for name in every if re.search(r"kube-apiserver|controller-manager|scheduler|etcd", name)]
    assert any("coredns" in name for name in every)
    assert any("kube-proxy:" in name for name in every)  # of Linux workers
    pin = required.pins(plan).program(next(one for one in required.every(plan) if str(one).startswith("k3s ")))  # type: ignore[arg-type]
    assert pin is not None
    assert str(pin.sums_url).endswith("/sha256sum-amd64.txt")


def test_each_release_has_its_pin_and_a_combination() -> None:
    rows = K3S.known
    good = {row.name: row.kubernetes for row in versions.load().combinations}
    pinned = {pin.version: pin.url for pin in rows.pins.programs}
    for minor, row in rows.versions.items():
        assert row["k3s"].partition("+")[0] == good[minor]
        assert row["k3s"].replace("+", "%2B") in pinned.pop(row["k3s"])
    assert not pinned
    assert releases.number(min(rows.versions)) >= versions.OLDEST_MINOR


def test_the_newest_version_that_k3s_has_is_taken_and_said() -> None:
    wanted = spec.load("1-0-1", [WANTED])
    plan = made()
    assert plan.cluster.versions.kubernetes == "v1.36.3"
    assert plan.cluster.releases["k3s"] == "v1.36.3+k3s1"
    assert "not v1.37.2). No release of k3s with Kubernetes v1.37.2" in str(cluster.version_note(wanted, plan))
    named = ["kubernetes.version=1.35"]
    assert cluster.version_note(spec.load("1-0-1", [WANTED, *named]), made(*named)) is None


@pytest.mark.parametrize(
    ("change", "what", "cure"),
    [
        (("kubernetes.version=1.37",), "k3s can't make a cluster with Kubernetes v1.37.2", "one of 1.36, 1.35, 1.34"),
        (
            ("kubernetes.version=v1.36.1", "kubernetes.untested=true"),
            "k3s can't make a cluster with Kubernetes v1.36.1",
            "1.36",
        ),
        (("kubernetes.source=src",), "k3s can't run a control plane from kubernetes.source", "winlab push"),
    ],
)
def test_what_does_not_go_with_k3s_is_refused(change: tuple[str, ...], what: str, cure: str) -> None:
    with pytest.raises(UsageError) as refused:
        made(*change)
    assert what in refused.value.what
    assert cure in str(refused.value.cure)


def test_a_lab_that_joins_has_no_distribution_to_choose() -> None:
    wanted = spec.load("1-1-1", [WANTED])
    with pytest.raises(UsageError, match="the cluster exists already"):
        planning.make(wanted, "lab", plans.KVM, plans.stock(wanted), external.K3S)


def test_a_standing_lab_keeps_its_distribution() -> None:
    before, after = plans.make(plans.KVM, "1-0-1", "kubernetes.version=1.36"), made("kubernetes.version=1.36")
    rows = changes.changes([before], after).refused
    assert [(row.what, row.before, row.after) for row in rows] == [("kubernetes.distribution", "kubeadm", "k3s")]


def test_plans_of_other_labs_do_not_name_a_distribution() -> None:
    """Their digests are those that earlier versions recorded."""
    assert not {"made_with", "proxies"} & set(plans.make(plans.KVM, "1-0-1").cluster.model_dump(mode="json"))
    plan = made()
    assert Plan.model_validate_json(plan.model_dump_json()).cluster.distribution is K3S


def test_coredns_is_whole_once_its_deployment_is_there() -> None:
    plan = made("kubernetes.service_cidr=10.112.0.0/16")
    found = {row["kind"]: row for row in dns.objects(nodes.cluster(plan))}
    assert list(found)[-1] == "Deployment"
    assert found["Service"]["spec"]["clusterIP"] == "10.112.0.10"
    container = found["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] in required.node_images(plan, controller=True)
    assert "kubernetes cluster.local in-addr.arpa ip6.arpa {" in found["ConfigMap"]["data"]["Corefile"]
    assert found["ServiceAccount"]["metadata"]["name"] == found["ClusterRoleBinding"]["subjects"][0]["name"]
