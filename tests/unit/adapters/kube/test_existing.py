"""Bootstrap tokens, and the facts of an external cluster."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from certificates import CA
from lab_fakes import Api

from winlab.adapters.kube import existing, tokens
from winlab.design.distribution import known
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.errors import ClusterError, NotFoundError, UsageError

GROUP = "system:bootstrappers:kubeadm:default-node-token"
PIN = "sha256:b1930b1a81cfd32c6c3fc1dc9f28285a314ad8875f645140a6755a396b7d485d"
KUBEADM = {"networking": {"podSubnet": "fd00::/64,10.244.0.0/16", "serviceSubnet": "10.96.0.0/12"}}
KUBELET = {"clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local"}
FLANNEL = {"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 4096, "Port": 4789}}


def config_map(key: str, document: dict[str, Any]) -> dict[str, Any]:
    return {"data": {key: yaml.safe_dump(document)}}


def info(server: str = "https://192.0.2.10:6443") -> dict[str, Any]:
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(CA.encode()).decode()}
    return config_map("kubeconfig", {"clusters": [{"name": "", "cluster": cluster}]})


def daemon_sets(*names: str) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": name, "namespace": "net"}} for name in names]}


def api(**changes: Any) -> Api:
    answers = {
        "version": {"serverVersion": {"gitVersion": "v1.35.2+k3s1"}},
        "get configmap cluster-info": info(),
        "get configmap kubeadm-config": config_map("ClusterConfiguration", KUBEADM),
        "get configmap kubelet-config": config_map("kubelet", KUBELET),
        "get configmap kube-flannel-cfg": config_map("net-conf.json", FLANNEL),
        "get daemonsets": daemon_sets("kube-proxy", "kube-flannel-ds"),
        "get nodes": {"items": [{"metadata": {"name": "cp"}}, {"metadata": {"name": "node-1"}}]},
    }
    return Api({**answers, **{key.replace("_", " "): value for key, value in changes.items()}})


def test_a_worker_that_would_break_the_network_is_refused() -> None:
    with pytest.raises(UsageError, match="break the cluster's own network"):
        existing.read(api(get_daemonsets=daemon_sets("kube-proxy", "kindnet")))
    found = existing.read(api(get_daemonsets=daemon_sets("kube-proxy", "kindnet")), attached=True)
    assert (found.on_link, found.cni) == (True, None)


def test_the_address_of_a_node_is_its_first_of_ipv4() -> None:
    rows = [("Hostname", "cp"), ("InternalIP", "fd00::2"), ("InternalIP", "172.18.0.2"), ("InternalIP", "172.18.0.3")]
    node = {"status": {"addresses": [{"type": kind, "address": address} for kind, address in rows]}}
    assert existing.internal(node) == "172.18.0.2"
    assert existing.internal({"status": {}}) == existing.internal({}) == ""


def test_an_attached_lab_has_the_api_server_in_its_own_network() -> None:
    found = existing.read(api())
    assert any("is in the lab's own network" in one for one in existing.problems(found, "192.0.2.0/24", [], 35))
    bridge = LocalBridge("br-1", "192.0.2.0/24", "192.0.2.1")
    assert existing.problems(replace(found, bridge=bridge), "192.0.2.0/24", [], 35) == []


# -- tokens


def test_the_pin_is_openssls() -> None:
    assert tokens.ca_hash(CA) == tokens.ca_hash(CA.encode()) == PIN
    with pytest.raises(UsageError, match="not a certificate"):
        tokens.ca_hash("nonsense")


def test_a_token_goes_in_on_the_standard_input_alone() -> None:
    there = api()
    token = tokens.mint(there, GROUP, ttl=600)
    assert tokens.FORMAT.fullmatch(token)
    assert tokens.mint(there, GROUP) != token
    (line, text), *_ = there.asked
    assert line.startswith("apply --server-side")
    secret = token.partition(".")[2]
    assert all(secret not in asked for asked, _ in there.asked)
    made = yaml.safe_load(text or "")
    assert made["metadata"] == {"name": f"bootstrap-token-{token[:6]}", "namespace": "kube-system"}
    assert made["type"] == "bootstrap.kubernetes.io/token"
    data = made["stringData"]
    assert (data["token-id"], data["token-secret"]) == (token[:6], secret)
    assert data["auth-extra-groups"] == GROUP
    assert data["usage-bootstrap-authentication"] == data["usage-bootstrap-signing"] == "true"
    ends = datetime.fromisoformat(data["expiration"])
    assert timedelta(seconds=590) < ends - datetime.now(UTC) <= timedelta(seconds=600)


def test_revoking_names_the_id_only() -> None:
    there = api()
    tokens.revoke(there, "abcdef.0123456789abcdef")
    assert there.asked == [("delete secret --namespace=kube-system bootstrap-token-abcdef --ignore-not-found", None)]
    for text in ("abcdef", "ABCDEF.0123456789abcdef", "--all.0123456789abcdef", ""):
        with pytest.raises(UsageError, match="not a bootstrap token"):
            tokens.revoke(there, text)


def test_a_token_for_a_while_is_deleted_whatever_happens() -> None:
    there = api()
    with pytest.raises(KeyError), tokens.lent(there, GROUP) as token:
        raise KeyError
    assert there.asked[-1][0] == f"delete secret --namespace=kube-system bootstrap-token-{token[:6]} --ignore-not-found"
    there = api(delete=ClusterError("away"))
    with tokens.lent(there, GROUP) as token:
        assert token


# -- facts


def test_the_facts() -> None:
    found = existing.read(api())
    assert found == ForeignCluster(
        server="https://192.0.2.10:6443",
        advertised="https://192.0.2.10:6443",
        ca=CA,
        version="v1.35.2",
        pod_cidr="10.244.0.0/16",
        service_cidr="10.96.0.0/12",
        dns="10.96.0.10",
        domain="cluster.local",
        cni="flannel-vxlan",
        cni_note="flannel with vxlan, VNI 4096, port 4789",
        nodes=("cp", "node-1"),
    )
    assert (found.endpoint, found.minor) == ("192.0.2.10:6443", 35)


def test_another_address_of_the_server() -> None:
    found = existing.read(api(**{"get configmap cluster-info": info("https://cp.example:6443")}), "203.0.113.5:6443")
    assert (found.server, found.advertised) == ("https://203.0.113.5:6443", "https://cp.example:6443")
    assert (found.endpoint, found.external) == ("cp.example:6443", "203.0.113.5:6443")
    assert existing.problems(found, "10.77.0.0/24", [], 35) == []
    for text in ("http://x:1", "https://x", "https://x:y", "https://x:1/path", "nonsense"):
        with pytest.raises(UsageError, match="not the address of an API server"):
            existing.read(api(), text)


def test_without_cluster_dns_in_the_kubelets_configuration_it_is_the_tenth_service() -> None:
    found = existing.read(
        api(get_configmap_kubelet_config={}, **{"get configmap kubelet-config": config_map("kubelet", {"a": 1})})
    )
    assert (found.dns, found.domain) == ("10.96.0.10", "cluster.local")


def service(name: str, *addresses: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"clusterIP": addresses[0], "clusterIPs": list(addresses)}}


@pytest.mark.parametrize(
    ("listed", "services", "dns"),
    [
        (["169.254.20.10"], [service("kube-dns", "10.96.0.10")], "10.96.0.10"),
        # F14: kubernetes-sigs/kubespray#5757: its Service has another name and address
        (
            ["169.254.25.10"],
            [service("upstream", "10.96.9.9"), service("coredns", "fd00::3", "10.96.0.3")],
            "10.96.0.3",
        ),
        (["169.254.20.10"], [service("a", "10.96.0.9"), service("kube-dns", "10.96.0.7")], "10.96.0.7"),
        (["169.254.20.10"], [service("headless", "None")], "10.96.0.10"),
        (["169.254.20.10"], [], "10.96.0.10"),
        (["fd00::a", "10.96.0.10"], [], "10.96.0.10"),
        (["fd00::a"], [], "10.96.0.10"),
        (["10.96.0.77"], [service("kube-dns", "10.96.0.10")], "10.96.0.77"),
        ("10.96.0.77", [], "10.96.0.10"),
    ],
)
def test_the_name_server_is_a_service_that_windows_nodes_reach(
    listed: Any, services: list[dict[str, Any]], dns: str
) -> None:
    changes = {
        "get configmap kubelet-config": config_map(
            "kubelet", {"clusterDNS": listed, "clusterDomain": "Cluster.Local."}
        ),
        "get services": {"items": services},
    }
    found = existing.read(api(**changes))
    assert (found.dns, found.domain) == (dns, "cluster.local")


def test_without_an_answer_the_name_server_is_the_tenth_service() -> None:
    kubelet = config_map("kubelet", {"clusterDNS": ["169.254.20.10"]})
    assert existing.read(api(**{"get configmap kubelet-config": kubelet})).dns == "10.96.0.10"


def test_a_server_without_a_port_has_that_of_https() -> None:
    """F15: kubernetes/kubeadm#1956."""
    found = existing.read(api(**{"get configmap cluster-info": info("https://cp.example")}))
    assert (found.endpoint, found.external) == ("cp.example:443", "cp.example:443")
    found = existing.read(api(**{"get configmap cluster-info": info("https://cp.example")}), "192.0.2.5:443")
    assert (found.endpoint, found.external) == ("cp.example:443", "192.0.2.5:443")
    assert existing.problems(found, "10.77.0.0/24", [], 35) == []
    found = existing.read(api(**{"get configmap cluster-info": info("https://cp.example")}), "192.0.2.5:6443")
    assert "can't replace it" in existing.problems(found, "10.77.0.0/24", [], 35)[0]


def test_a_server_with_an_ipv6_address_is_out_of_reach() -> None:
    found = existing.read(api(**{"get configmap cluster-info": info("https://[fd00::10]:6443")}))
    assert existing.problems(found, "10.77.0.0/24", [], 35) == [
        "Its API server fd00::10 has an IPv6 address, and the lab's nodes have IPv4 alone."
    ]


@pytest.mark.parametrize("server", ["https://cp.example:abc", "https://:6443", "cp.example:6443", "https://[::1", ""])
def test_a_server_that_is_not_a_url(server: str) -> None:
    with pytest.raises(ClusterError, match="cluster-info has no server"):
        existing.read(api(**{"get configmap cluster-info": info(server)}))


@pytest.mark.parametrize("name", ["cluster-info", "kubeadm-config", "kubelet-config"])
def test_a_cluster_that_kubeadm_did_not_make(name: str) -> None:
    with pytest.raises(NotFoundError, match="not made by kubeadm"):
        existing.read(api(**{f"get configmap {name}": ""}))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"get configmap cluster-info": {"data": {"kubeconfig": "clusters: []"}}}, ClusterError, "no server"),
        ({"get configmap cluster-info": {"data": {}}}, ClusterError, "can't be parsed"),
        (
            {"get configmap kubeadm-config": config_map("ClusterConfiguration", {"a": 1})},
            UsageError,
            "no IPv4 service network",
        ),
        ({"version": ClusterError("kubectl failed", why="refused")}, ClusterError, "refused"),
        ({"version": {}}, ClusterError, "does not report its version"),
        ({"version": {"serverVersion": {"gitVersion": "v2"}}}, ClusterError, "can't parse"),
        ({"auth can-i": ClusterError("no")}, ClusterError, "may not create a bootstrap token"),
    ],
)
def test_unreadable_answers(changes: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as failed:
        existing.read(api(**changes))
    assert says in str(failed.value)


def pools(**spec: str) -> dict[str, Any]:
    return {
        "get daemonsets": daemon_sets("calico-node"),
        "get ippools": {"items": [{"metadata": {"name": "pool"}, "spec": spec}]},
    }


@pytest.mark.parametrize(
    ("changes", "cni", "note"),
    [
        (pools(vxlanMode="Always"), "calico-vxlan", "VXLAN"),
        (pools(ipipMode="Never"), "calico-bgp", "BGP"),
        (pools(ipipMode="Always"), None, "IP-in-IP"),
        (pools(vxlanMode="CrossSubnet"), None, "CrossSubnet"),
        ({"get daemonsets": daemon_sets("calico-node"), "get ippools": ClusterError("x")}, None, "can't be read"),
        ({"get daemonsets": daemon_sets("kube-proxy", "cilium")}, None, "cilium"),
        ({"get daemonsets": daemon_sets()}, None, "no DaemonSet"),
        ({"get configmap kube-flannel-cfg": ""}, None, "there is no 'kube-flannel-cfg' in net"),
        (
            {"get configmap kube-flannel-cfg": config_map("net-conf.json", {"Backend": {"Type": "vxlan"}})},
            None,
            "VNI default",
        ),
        (
            {"get configmap kube-flannel-cfg": config_map("net-conf.json", {"Backend": {"Type": "host-gw"}})},
            None,
            "host-gw",
        ),
    ],
)
def test_the_pod_network_is_recognized(changes: dict[str, Any], cni: str | None, note: str) -> None:
    found = existing.read(api(**changes))
    assert found.cni == cni
    assert note in found.cni_note


# -- whether the cluster is suitable


def test_a_suitable_cluster_is_accepted() -> None:
    found = existing.read(api())
    assert existing.problems(found, "10.77.0.0/24", ["win-1"], 35) == []
    existing.check(found, "10.77.0.0/24", ["win-1"], 33)


@pytest.mark.parametrize(
    ("server", "cidr", "name", "minor", "says"),
    [
        ("https://127.0.0.1:6443", "10.77.0.0/24", "w", 35, "means the machine itself"),
        ("https://localhost:6443", "10.77.0.0/24", "w", 35, "means the machine itself"),
        ("https://[::1]:6443", "10.77.0.0/24", "w", 35, "means the machine itself"),
        ("https://10.77.0.11:6443", "10.77.0.0/24", "w", 35, "is in the lab's own network"),
        ("https://c.example:6443", "10.244.7.0/24", "w", 35, "pod network 10.244.0.0/16"),
        ("https://c.example:6443", "10.100.0.0/24", "w", 35, "service network 10.96.0.0/12"),
        ("https://c.example:6443", "10.77.0.0/24", "node-1", 35, "same names: node-1"),
        ("https://c.example:6443", "10.77.0.0/24", "w", 36, "never newer"),
        ("https://c.example:6443", "10.77.0.0/24", "w", 31, "3 minor versions older"),
    ],
)
def test_unsuitable_clusters(server: str, cidr: str, name: str, minor: int, says: str) -> None:
    found = existing.read(api(**{"get configmap cluster-info": info(server)}))
    problems = existing.problems(found, cidr, [name], minor)
    assert len(problems) == 1
    assert says in problems[0]
    with pytest.raises(UsageError) as refused:
        existing.check(found, cidr, [name], minor)
    assert refused.value.why == problems[0]


@pytest.mark.parametrize(
    ("advertised", "server"),
    [
        ("https://192.0.2.10:6443", "203.0.113.5:6443"),  # kubeadm continues with the address
        ("https://cp.example:6443", "203.0.113.5:7443"),  # DNS says nothing of ports
        ("https://cp.example:6443", "other.example:6443"),
        ("https://localhost:6443", "203.0.113.5:6443"),
    ],
)
def test_kubeadm_continues_with_the_advertised_server(advertised: str, server: str) -> None:
    found = existing.read(api(**{"get configmap cluster-info": info(advertised)}), server)
    (problem,) = existing.problems(found, "10.77.0.0/24", [], 35)
    assert "kubeadm uses that address" in problem
    assert advertised in problem


def test_the_authority_is_that_of_the_nodes() -> None:
    assert existing.authority(api(), known.DEFAULT) == CA
