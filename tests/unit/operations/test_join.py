"""Workers for an external cluster: their plan, their steps, what is refused, and how they leave."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import runs
import yaml
from certificates import CA
from lab_fakes import Api

from winlab import account, run
from winlab.adapters.kube import identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.design import cni, spec
from winlab.design.catalog.artifact import ContainerImage, Manifest, Program
from winlab.design.cni.model import HALF, Lack
from winlab.design.distribution import kubelet
from winlab.design.plan import addresses, required, tags
from winlab.design.plan import make as plan
from winlab.design.plan.existing import ForeignCluster
from winlab.design.plan.model import Plan
from winlab.design.render import nodes
from winlab.design.render.topology import topology
from winlab.errors import ClusterError, UsageError
from winlab.events import Event, Note
from winlab.lab_folder import LabFolder
from winlab.operations import join
from winlab.site import Site
from winlab.steps import joining, pod_network, ready
from winlab.steps.payload import Origin

CLUSTER = ForeignCluster(
    server="https://192.0.2.10:6443", advertised="https://192.0.2.10:6443", ca=CA, version="v1.36.1",
    pod_cidr="10.200.0.0/16", service_cidr="10.96.0.0/12", dns="10.96.0.10", domain="their.domain", cni=None,
    cni_note="it has no DaemonSet of a CNI", nodes=("cp",),
)  # fmt: skip
REHEARSAL = "workers.os=windows-rehearsal"


def make(*changes: str, cluster: ForeignCluster = CLUSTER, source: str = "1-1-1") -> Plan:
    wanted = spec.load(source, changes)
    return plan.make(wanted, "lab", plans.TCG, plans.stock(wanted), cluster)


# -- the plan


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


# -- the steps


def test_the_kubeconfig_is_kept_for_its_owner_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = runs.run(make(REHEARSAL))
    there.folder.make()
    there.folder.kubectl.touch()
    answering = True
    monkeypatch.setattr(Kubectl, "answers", lambda _self: answering)
    config = joining.given_kubeconfig(there, "secret")
    assert not config.done()
    config.run(SimpleNamespace(say=lambda *_: None))  # type: ignore[arg-type]
    assert there.folder.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert config.done()
    answering = False
    assert not config.done()
    with pytest.raises(ClusterError, match="no longer answers"):
        config.run(SimpleNamespace(say=lambda *_: None))  # type: ignore[arg-type]


def kubelet_command(made: Plan, name: str) -> str:
    """The command line of a Windows node's kubelet."""
    membership = made.cluster.membership
    return kubelet.windows_command(
        made.cluster.versions, nodes.member(made, made.node(name)), bootstraps=membership.bootstraps
    )


def test_a_joined_node_s_serving_certificate_is_approved_once_it_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = [["csr-1"], ["csr-1"], []]
    there = runs.run(make(REHEARSAL))
    approved: list[str] = []

    def requests(_kubectl: object, node: str, given: list[str]) -> tuple[list[str], list[str]]:
        assert (node, given) == ("node-1", ["10.77.0.101"])
        return asked_for.pop(0), ["'csr-2': it asks for other usages"]

    ready_now = node(status={"conditions": [{"type": "Ready", "status": "True"}]})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _folder: Api({"get node node-1": ready_now})))
    monkeypatch.setattr(identity, "serving_requests", requests)
    monkeypatch.setattr(identity.signing, "approve", lambda _kubectl, name: approved.append(name))
    monkeypatch.setattr(ready, "require_no_crash", lambda *_: None)
    step, said = runs.titled(ready.steps(there), "ready node-1"), list[str]()
    assert not step.done()
    step.run(SimpleNamespace(say=said.append))  # type: ignore[arg-type]
    assert approved == ["csr-1"]
    assert "a certificate of node-1 is not approved: 'csr-2': it asks for other usages" in said
    assert step.done()


def test_nodes_carry_their_machine_s_label_and_the_lab_s_own_don_t() -> None:
    there = runs.run(make(REHEARSAL))
    node = there.plan.node("node-1")
    assert f"--node-labels=winlab.internal/machine={node.uuid}" in kubelet_command(there.plan, "node-1")
    own = runs.run(plans.make(plans.TCG, "1-1-1", REHEARSAL))
    assert "--node-labels" not in kubelet_command(own.plan, "node-1")


def test_nodes_of_several_pools_carry_their_pool_s_label() -> None:
    there = runs.run(make(REHEARSAL, "linux_workers.count=1"))
    linux = nodes.member(there.plan, there.plan.node("linux-1"))
    assert "winlab.internal/pool=node,winlab.internal/machine=" in kubelet_command(there.plan, "node-1")
    assert linux.labels["winlab.internal/pool"] == "linux"


@pytest.mark.parametrize(
    ("listed", "cidr"),
    [
        ([[], [{"metadata": {"name": "node-1"}, "spec": {}}]], "10.200.1.0/24"),
        ([], "10.200.1.0/24"),
    ],
)
def test_a_node_may_appear_shortly_after_its_join(
    monkeypatch: pytest.MonkeyPatch, listed: list[list[dict[str, Any]]], cidr: str
) -> None:
    there = runs.run(make(REHEARSAL))
    looks = [*listed, [{"metadata": {"name": "node-1"}, "spec": {"podCIDR": cidr}}]]
    api = SimpleNamespace(get=lambda _kind: {"items": looks.pop(0)})
    monkeypatch.setattr(Kubectl, "of", classmethod(lambda _cls, _state: api))
    runs.clock(monkeypatch)
    assert pod_network.await_share(there, there.plan.node("node-1"), _voice()).pod_cidr == cidr
    assert looks == []


# -- the user's kubeconfig


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text("ca")
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "contexts": [
                    {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "x"}},
                    {"name": "two", "context": {"cluster": "c", "user": "plug-in"}},
                    {"name": "broken", "context": {"cluster": "none", "user": "u"}},
                    {"name": "lost", "context": {"cluster": "lost", "user": "u"}},
                ],
                "clusters": [
                    {"name": "c", "cluster": {"server": "https://h/path", "certificate-authority": "ca.crt"}},
                    {"name": "lost", "cluster": {"server": "https://h", "certificate-authority": "no.crt"}},
                ],
                "users": [
                    {"name": "u", "user": {"token": "secret"}},
                    {"name": "plug-in", "user": {"exec": {"command": "./bin/login"}, "tokenFile": "t"}},
                ],
                "current-context": "one",
            }
        )
    )
    return path


def test_one_context_with_all_that_it_needs(config: Path, tmp_path: Path) -> None:
    made = yaml.safe_load(join.chosen(config, "", "lab"))
    assert made["current-context"] == "winlab-lab"
    assert made["clusters"] == [
        {"name": "winlab-lab", "cluster": {"server": "https://h/path", "certificate-authority-data": "Y2E="}}
    ]
    assert made["users"] == [{"name": "winlab-lab", "user": {"token": "secret"}}]
    (user,) = yaml.safe_load(join.chosen(config, "two", "lab"))["users"]
    assert user["user"] == {"exec": {"command": str(tmp_path / "bin/login")}, "tokenFile": str(tmp_path / "t")}


def test_files_that_are_not_kubeconfigs(config: Path, tmp_path: Path) -> None:
    for context_name, says in (("three", "no context 'three'"), ("broken", "can't be used"), ("lost", "no.crt")):
        with pytest.raises(UsageError) as caught:
            join.chosen(config, context_name, "lab")
        assert says in str(caught.value)
        assert "secret" not in str(caught.value)
    for text in ("", "[]", "contexts: 1", "{", "contexts: [1]"):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(UsageError, match="not a readable kubeconfig"):
            join.chosen(tmp_path / "bad", "", "lab")
    with pytest.raises(UsageError, match="not a readable kubeconfig"):
        join.chosen(tmp_path / "missing", "", "lab")


@pytest.mark.parametrize(("name", "context"), [("1", ""), ("1", "1"), ("1.5", ""), ("true", "true"), ("'1'", "")])
def test_names_that_are_numbers_are_texts(name: str, context: str, tmp_path: Path) -> None:
    """F30: as kubectl reads them."""
    (tmp_path / "config").write_text(
        f"contexts: [{{name: {name}, context: {{cluster: {name}, user: {name}}}}}]\n"
        f"clusters: [{{name: {name}, cluster: {{server: https://h}}}}]\n"
        f"users: [{{name: {name}, user: {{token: x}}}}]\n"
        f"current-context: {name}\n"
    )
    made = yaml.safe_load(join.chosen(tmp_path / "config", context, "lab"))
    assert made["users"] == [{"name": "winlab-lab", "user": {"token": "x"}}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("contexts: [{name: a, context: {cluster: a}}]", "The field 'user' is missing."),
        ("contexts: [{name: a}]", "The field 'context' is missing."),
        ("contexts: [{name: a, context: {cluster: a, user: b}}]\nusers: null", "It has no user 'b'."),
        ("contexts: [{name: a, context: []}]", "A field of it is not the mapping, list or text that kubectl expects"),
        ("contexts: 3", "A field of it is not the mapping, list or text that kubectl expects there."),
        ("contexts: null", ""),
    ],
)
def test_errors_in_a_kubeconfig_are_reported_without_names_of_python(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"{text}\nclusters: [{{name: a, cluster: {{}}}}]\ncurrent-context: a\n")
    with pytest.raises(UsageError) as caught:
        join.chosen(tmp_path / "config", "", "lab")
    assert caught.value.why.startswith(why)
    assert "Error" not in str(caught.value) + caught.value.why + caught.value.cure


def test_a_program_that_a_kubeconfig_names_is_noted_before_it_runs(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N18."""
    seen: list[Event] = []

    def look_at(*_: object) -> ForeignCluster:
        assert len(notes()) == 1
        raise ClusterError("enough")

    def notes() -> list[Note]:
        return [one for one in seen if isinstance(one, Note)]

    monkeypatch.setattr(join, "look_at", look_at)
    monkeypatch.setattr(account.os, "geteuid", lambda: 0)
    with pytest.raises(ClusterError, match="enough"):
        join.plan(spec.load("1-1-1", [REHEARSAL]), "lab", Site(), seen.append, config, context="two")
    (note,) = notes()
    assert note.text == f"kubectl runs '{config.parent}/bin/login' as root, because the kubeconfig names it."
    assert join.runs(join.chosen(config, "one", "lab")) == ""


def test_looking_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[Path] = []

    def read(kubectl: Kubectl, server: str, own: str, *, attached: bool) -> ForeignCluster:
        assert kubectl.kubeconfig.read_text() == config
        assert own == "192.0.2.9:6443"
        assert kubectl.kubeconfig.stat().st_mode & 0o777 == 0o600
        assert kubectl.kubeconfig.parent.parent == folder.path
        seen.append(kubectl.kubeconfig)
        return replace(CLUSTER, server=server)

    monkeypatch.setattr(join.existing, "read", read)
    monkeypatch.setattr(join.shutil, "which", lambda _name: "/usr/bin/kubectl")
    folder = LabFolder("lab")
    config = yaml.safe_dump({"clusters": [{"cluster": {"server": "https://192.0.2.9:6443"}}]})
    found = join.look_at(folder, config, "https://x:1", spec.load("1-1-1"), Origin(), _voice())
    assert found.server == "https://x:1"
    assert not seen[0].exists()
    assert not folder.path.exists()


def test_kubectl_comes_from_the_source_if_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch(versions: Any, _origin: Origin, _progress: object) -> Path:
        asked.append(versions.kubernetes)
        return Path("/fetched/kubectl")

    monkeypatch.setattr(join.shutil, "which", lambda _name: None)
    monkeypatch.setattr(join.payload, "fetch_kubectl", fetch)
    monkeypatch.setattr(join.existing, "read", lambda kubectl, *_, **__: kubectl.program)
    made = spec.load("1-1-1", ["kubernetes.version=1.35"])
    behind = yaml.safe_dump({"clusters": [{"cluster": {"server": "https://proxy/k8s/clusters/a"}}]})
    assert join.own_server(behind) == ""
    assert join.look_at(LabFolder("lab"), behind, "", made, Origin(), _voice()) == Path("/fetched/kubectl")
    assert asked == ["v1.35.4"]


def _voice() -> Any:
    return SimpleNamespace(say=lambda *_args: None)


# -- checks before anything is touched


@pytest.mark.parametrize("change", ["controllers.count=3", "kubernetes.pod_cidr=10.1.0.0/16"])
def test_settings_of_the_cluster_can_not_be_changed(change: str) -> None:
    join.check_changes(["workers.cpus=4", "kubernetes.version=1.35"])
    with pytest.raises(UsageError, match="external cluster decides that"):
        join.check_changes([change])
    with pytest.raises(UsageError, match="external cluster decides that"):
        join.make_spec(1, [change])


def test_the_spec_of_workers_that_join() -> None:
    spec = join.make_spec(3, ["workers.cpus=4"], os="debian-13")
    assert (spec.workers[0].count, spec.workers[0].cpus, spec.workers[0].os) == (3, 4, "debian-13")


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_(error: OSError | None, own: str = "192.0.2.7:") -> None:
        def connect(address: str, ca: str) -> bool:
            assert ca == CA
            if error is not None:
                raise error
            return address.startswith(own)

        monkeypatch.setattr(join.endpoint, "connect", connect)

    return set_


def test_a_suitable_cluster_is_accepted(reach: Callable[..., None]) -> None:
    reach(None)
    join.check(make(REHEARSAL), CLUSTER, [])
    # a join that was interrupted resumes
    again = replace(CLUSTER, nodes=("cp", "node-1"))
    join.check(make(REHEARSAL), again, ["node-1"])
    with pytest.raises(UsageError, match="can't join"):
        join.check(make(REHEARSAL), again, [])
    with pytest.raises(UsageError, match="without workers"):
        join.check(make(source="1-0-1"), CLUSTER, [])


def test_a_control_plane_on_this_host_is_reached_only_if_the_spec_says_so(reach: Callable[..., None]) -> None:
    reach(None, own="192.0.2.10:")
    with pytest.raises(UsageError, match="is on this host") as caught:
        join.check(make(REHEARSAL), CLUSTER, [])
    assert "network.reach=all" in caught.value.cure
    join.check(make(REHEARSAL, "network.reach=all"), CLUSTER, [])


def test_the_server_is_asked_first(reach: Callable[..., None]) -> None:
    reach(socket.gaierror("unknown"))
    named = replace(CLUSTER, advertised="https://cp:6443", server="https://cp:6443")
    with pytest.raises(UsageError, match="no name server knows") as caught:
        join.check(make(REHEARSAL, cluster=named), named, [])
    assert "--server ADDRESS:6443" in caught.value.cure
    join.check(make(REHEARSAL, "network.dns=[192.0.2.1]", cluster=named), named, [])  # which may know it
    reach(ssl.SSLCertVerificationError("hostname mismatch"))
    with pytest.raises(UsageError, match="is not the cluster's API server") as caught:
        join.check(make(REHEARSAL), CLUSTER, [])
    assert "kubernetes.default.svc" in caught.value.cure
    reach(ConnectionRefusedError("refused"))
    with pytest.raises(UsageError, match="can't be reached"):
        join.check(make(REHEARSAL), CLUSTER, [])


def test_users_learn_what_winlab_does_not_do() -> None:
    made = make(REHEARSAL)
    told = " ".join(join.notes(made, CLUSTER))
    assert "no logs from these nodes" in told
    theirs = replace(CLUSTER, cni="calico-vxlan")
    assert "also for Windows" in " ".join(join.notes(make("workers.os=windows-2022", cluster=theirs), theirs))


# -- leaving


def node(name: str = "node-1", **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "metadata": {"name": name, "labels": {nodes.MACHINE: addresses.make_uuid("lab", name)}},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.77.0.101"}]},
    }
    return row | changes


def came() -> LabFolder:
    """The folder of a lab that came to a cluster."""
    folder = LabFolder("lab")
    folder.write(folder.kubeconfig, "apiVersion: v1")
    folder.kubectl.touch()
    return folder


def leave(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], *changes: str) -> tuple[list[str], str, Api]:
    made = make(REHEARSAL, *changes)
    api = Api(answers)
    monkeypatch.setattr(api, "answers", lambda: "down" not in answers, raising=False)
    monkeypatch.setattr(join, "Kubectl", lambda *_: api)
    removed, left = join.leave(came(), [tags.of(made, one) for one in made.nodes])
    return removed, left, api


def test_the_lab_s_own_nodes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"get node node-1": node(), "get nodes": {"items": []}, "get runtimeclasses": {"items": []}}
    removed, left, api = leave(monkeypatch, answers)
    assert (removed, left) == (["node-1"], "")
    deleted = [line for line, _ in api.asked if line.startswith("delete")]
    assert deleted[0] == "delete node node-1 --ignore-not-found"
    assert [line.split()[1] for line in deleted[1:-1]] == [
        "clusterrolebindings", "serviceaccounts", "certificatesigningrequests",
    ]  # fmt: skip
    assert all("--selector=winlab.internal/node=node-1" in line for line in deleted[1:-1])


def test_the_half_that_winlab_added_goes_with_its_last_windows_node(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"items": [{"metadata": {"name": "of-another-lab"}}]}
    for there, gone in (({"items": []}, True), (others, False)):
        answers = {"get node node-1": node(), "get nodes": there, "get runtimeclasses": {"items": []}}
        _, left, api = leave(monkeypatch, answers)
        assert left == ""
        assert any(line.endswith(f"--selector={HALF}") for line, _ in api.asked if line.startswith("delete")) == gone


@pytest.mark.parametrize(
    ("managers", "others", "gone"),
    [(["winlab"], [], True), (["winlab", "kubectl-edit"], [], False), ([], [], False), (["winlab"], [{}], False)],
)
def test_with_the_last_windows_node_go_runtime_classes_that_are_winlab_s(
    monkeypatch: pytest.MonkeyPatch, managers: list[str], others: list[dict[str, Any]], gone: bool
) -> None:
    fields = [{"manager": name} for name in managers]
    row = {"metadata": {"name": "windows-2022", "managedFields": fields}, "handler": "runhcs-wcow-process"}
    left_there = {"items": [{"metadata": {"name": "theirs"}} for _ in others]}
    answers = {"get node node-1": node(), "get nodes": left_there, "get runtimeclasses": {"items": [row]}}
    removed, left, api = leave(monkeypatch, answers)
    assert (removed, left) == (["node-1"], "")
    assert ("delete runtimeclass windows-2022 --ignore-not-found" in [line for line, _ in api.asked]) == gone


@pytest.mark.parametrize(
    "row",
    [
        node(metadata={"name": "node-1"}),
        node(metadata={"name": "node-1", "labels": {nodes.MACHINE: "another"}}),
        node(status={"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}),
    ],
)
def test_a_node_of_another_lab_stays(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    removed, left, api = leave(monkeypatch, {"get node node-1": row})
    assert removed == []
    assert "'node-1' is not this lab's" in left
    assert not any(line.startswith("delete") for line, _ in api.asked)


def test_missing_nodes_are_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leave(monkeypatch, {"get node node-1": ""})[:2] == ([], "")


def test_an_unreachable_cluster_does_not_keep_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    removed, left, _ = leave(monkeypatch, {"down": True})
    assert removed == []
    assert "kubectl delete node node-1" in left
    assert "--selector='winlab.internal/node in (node-1)'" in left
    removed, left, _ = leave(monkeypatch, {"get node node-1": ClusterError("no", why="forbidden")})
    assert (removed, left) == ([], "Nodes that stay in the cluster: 'node-1': forbidden.")


@pytest.mark.parametrize(
    "answer",
    ["[]", "a: b: c", "x", '{"metadata": {"labels": []}}', '{"metadata": {"name": "node-1", "labels": {"a": 1}}}',
     '{"metadata": {"name": "node-1"}, "status": {"addresses": [{}]}}', '{"metadata": null}'],
)  # fmt: skip
def test_a_cluster_that_says_anything_keeps_no_lab(monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    removed, left, api = leave(monkeypatch, {"get node node-1": answer})
    assert removed == []
    assert left.startswith("Nodes that stay in the cluster: 'node-1': ")
    assert not any(line.startswith("delete") for line, _ in api.asked)


def test_a_kubectl_that_cannot_be_started_keeps_no_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_args: object, **_how: object) -> None:
        raise OSError(8, "Exec format error")

    made, folder = make(REHEARSAL), came()
    damaged = tmp_path / "kubectl"
    damaged.write_bytes(b"")
    damaged.chmod(0o755)
    folder.kubectl.unlink(missing_ok=True)
    folder.kubectl.symlink_to(damaged)
    monkeypatch.setattr(run.subprocess, "Popen", refuse)
    removed, left = join.leave(folder, [tags.of(made, one) for one in made.nodes])
    assert removed == []
    assert "kubectl delete node node-1" in left


def test_labs_with_controllers_and_labs_without_a_cluster_ask_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    own = plans.make(plans.TCG, "1-1-1", REHEARSAL)
    assert join.leave(LabFolder("lab"), [tags.of(own, one) for one in own.nodes]) == ([], "")
    assert join.leave(LabFolder("lab"), []) == ([], "")

    made = make(REHEARSAL)
    assert join.leave(LabFolder("lab"), [tags.of(made, one) for one in made.nodes]) == ([], "")


def test_without_the_lab_s_kubectl_the_user_s_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache that it lay in may have been cleared."""
    made, folder, seen = make(REHEARSAL), came(), []
    folder.kubectl.unlink()
    folder.kubectl.symlink_to("gone")
    tag = tags.of(made, made.node("node-1"))

    def kubectl(program: Path, _kubeconfig: Path) -> Api:
        seen.append(program)
        api = Api({"get node node-1": node(), "get nodes": {"items": [{"metadata": {"name": "theirs"}}]}})
        monkeypatch.setattr(api, "answers", lambda: True, raising=False)
        return api

    monkeypatch.setattr(join, "Kubectl", kubectl)
    monkeypatch.setattr(join.shutil, "which", lambda _: "/usr/bin/kubectl")
    assert join.leave(folder, [tag]) == (["node-1"], "")
    assert seen == [Path("/usr/bin/kubectl")]
    monkeypatch.setattr(join.shutil, "which", lambda _: None)
    assert "kubectl delete node node-1" in join.leave(folder, [tag])[1]
