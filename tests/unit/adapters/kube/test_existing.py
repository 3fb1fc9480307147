"""Bootstrap tokens, and the facts of an external cluster."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from certificates import CA
from lab_fakes import Api, allowed

from winlab.adapters.kube import existing, probe, tokens
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.errors import ClusterError, UsageError

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
    spec = {"template": {"spec": {}}}
    return {"items": [{"metadata": {"name": name, "namespace": "net"}, "spec": spec} for name in names]}


def api(**changes: Any) -> Api:
    answers = {
        "version": {"serverVersion": {"gitVersion": "v1.35.2"}},
        "get configmap kube-root-ca.crt": {"metadata": {"name": "x"}, "data": {"ca.crt": CA}},
        "get configmap extension-apiserver-authentication": {"metadata": {"name": "x"}, "data": {"client-ca-file": CA}},
        "get endpointslices": {"items": []},
        "create --filename": allowed(),
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
    named = {"metadata": {"name": "cp"}}
    node = {**named, "status": {"addresses": [{"type": kind, "address": address} for kind, address in rows]}}
    assert probe.node(node).address == "172.18.0.2"
    assert probe.node({**named, "status": {}}).address == probe.node(named).address == ""


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
        kind="kubeadm",
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
    assert (found.endpoint, found.external) == ("192.0.2.5:6443", "192.0.2.5:6443")  # DNS says nothing of ports


def test_a_server_with_an_ipv6_address_is_out_of_reach() -> None:
    found = existing.read(api(**{"get configmap cluster-info": info("https://[fd00::10]:6443")}))
    assert existing.problems(found, "10.77.0.0/24", [], 35) == [
        "Its API server fd00::10 has an IPv6 address, and the lab's nodes have IPv4 alone."
    ]


@pytest.mark.parametrize("server", ["https://cp.example:abc", "https://:6443", "cp.example:6443", "https://[::1", ""])
def test_a_server_that_is_not_a_url(server: str) -> None:
    with pytest.raises(ClusterError, match="cluster-info has no server"):
        existing.read(api(**{"get configmap cluster-info": info(server)}))


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
        (
            {"get configmap kubeadm-config": config_map("ClusterConfiguration", {"networking": ["x"]})},
            ClusterError,
            "can't be understood",
        ),
        ({"version": ClusterError("kubectl failed", why="refused")}, ClusterError, "refused"),
        ({"version": {}}, ClusterError, "does not report its version"),
        ({"version": {"serverVersion": {"gitVersion": "v2"}}}, ClusterError, "can't parse"),
        ({"create --filename": allowed(0)}, ClusterError, "may not ask for certificates"),
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


def felix(**spec: int) -> dict[str, Any]:
    return {"get felixconfigurations": {"items": [{"metadata": {"name": "default"}, "spec": spec}]}}


def test_what_windows_nodes_lack_there_is_read() -> None:
    strict = {"get ipamconfigs": {"items": [{"metadata": {"name": "default"}, "spec": {"strictAffinity": True}}]}}
    (lack,) = existing.read(api(**pools(vxlanMode="Always"), **strict)).lacks
    assert "no DaemonSet calico-node-windows" in lack.says
    both = {**pools(vxlanMode="Always"), "get daemonsets": daemon_sets("calico-node", "calico-node-windows")}
    found = existing.read(api(**both, **strict))
    assert (found.lacks, found.own_half) == ((), ("calico-node-windows",))


@pytest.mark.parametrize(
    ("changes", "cni", "note"),
    [
        (pools(vxlanMode="Always"), "calico-vxlan", "VXLAN"),
        (pools(vxlanMode="Always") | felix(vxlanVNI=4096, vxlanPort=4789), "calico-vxlan", "VXLAN"),
        (pools(vxlanMode="Always") | felix(vxlanVNI=4097), None, "VNI 4097, port 4789; winlab's workers have VNI 4096"),
        (pools(vxlanMode="Always") | felix(vxlanPort=8472), None, "port 8472"),
        (pools(ipipMode="Never") | felix(vxlanPort=8472), "calico-bgp", "BGP"),
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


@pytest.mark.parametrize("server", ["127.0.0.1:6443", "localhost:6443", "[::1]:6443", "0.0.0.0:6443"])
def test_a_given_address_of_each_machine_itself_is_refused(server: str) -> None:
    (problem,) = existing.problems(existing.read(api(), server), "10.77.0.0/24", ["w"], 35)
    assert "means the machine itself" in problem


@pytest.mark.parametrize(
    ("advertised", "server", "endpoint"),
    [
        ("https://192.0.2.10:6443", "203.0.113.5:6443", "203.0.113.5:6443"),
        ("https://cp.example:6443", "other.example:6443", "other.example:6443"),
        ("https://localhost:6443", "203.0.113.5:6443", "203.0.113.5:6443"),
        ("https://cp.example:6443", "203.0.113.5:6443", "cp.example:6443"),  # by the lab's DNS
    ],
)
def test_nodes_use_the_given_address(advertised: str, server: str, endpoint: str) -> None:
    found = existing.read(api(**{"get configmap cluster-info": info(advertised)}), server)
    assert (found.endpoint, found.external) == (endpoint, server)


# -- a cluster that publishes nothing for nodes

SLICE = {
    "metadata": {"name": "kubernetes"}, "addressType": "IPv4", "ports": [{"port": 6443}],
    "endpoints": [{"addresses": ["192.0.2.10"]}],
}  # fmt: skip
NOTHING = {
    f"get configmap {name}": "" for name in ("cluster-info", "kubeadm-config", "kubelet-config", "kube-flannel-cfg")
}
ARGUMENTS = '["server","--cluster-cidr","10.77.128.0/17"]'


def k3s(*nodes: dict[str, Any], **changes: Any) -> Api:
    answers = {
        **NOTHING,
        "version": {"serverVersion": {"gitVersion": "v1.35.2+k3s1"}},
        "get daemonsets": daemon_sets(),
        "get endpointslices": {"items": [SLICE]},
        "get nodes": {"items": list(nodes) or [{"metadata": {"name": "server"}, "spec": {"podCIDR": "10.42.3.0/24"}}]},
        "get servicecidrs": {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.43.0.0/16"]}},
        "get services": {"items": [service("kube-dns", "10.43.0.10")]},
    }
    return api(**{**answers, **changes})


def test_every_conformant_control_plane_says_enough() -> None:
    found = existing.read(k3s(), own="127.0.0.1:6443")
    assert (found.server, found.advertised) == ("https://192.0.2.10:6443", "https://192.0.2.10:6443")
    assert (found.pod_cidr, found.service_cidr) == ("10.42.0.0/16", "10.43.0.0/16")
    assert (found.dns, found.domain, found.kind) == ("10.43.0.10", "cluster.local", "k3s")
    assert (found.proxies, found.allocates, found.in_agents) == ((), True, False)


def test_the_kubeconfig_s_own_address_is_preferred() -> None:
    assert existing.read(k3s(), own="192.0.2.99:6443").endpoint == "192.0.2.99:6443"


def test_without_an_address_for_nodes_one_is_asked_for() -> None:
    nowhere = k3s(**{"get endpointslices": {"items": []}})
    with pytest.raises(UsageError, match="no address") as caught:
        existing.read(nowhere, own="localhost:6443")
    assert "--server" in caught.value.cure


def test_before_service_cidrs_the_refusal_of_an_address_names_their_network() -> None:
    refusal = "Invalid value: The range of valid IPs is 10.43.0.0/16"
    changes = {
        "get servicecidrs": ClusterError("no", why="no such resource"),
        "create --dry-run": ClusterError("no", why=refusal),
    }
    assert existing.read(k3s(**changes)).service_cidr == "10.43.0.0/16"


def test_a_running_kubelet_says_which_name_server_and_domain_it_has() -> None:
    own = {"kubeletconfig": {"clusterDNS": ["10.43.0.53"], "clusterDomain": "their.domain"}}
    found = existing.read(k3s(**{"get --raw=/api/v1/nodes/server/proxy/configz": own}))
    assert (found.dns, found.domain) == ("10.43.0.53", "their.domain")


@pytest.mark.parametrize(
    ("node", "changes", "pods"),
    [
        ({}, {"get configmap kube-proxy": config_map("config.conf", {"clusterCIDR": "10.1.0.0/16"})}, "10.1.0.0/16"),
        ({}, {"get ippools": {"items": [{"metadata": {"name": "p"}, "spec": {"cidr": "10.2.0.0/16"}}]}}, "10.2.0.0/16"),
        ({"metadata": {"name": "a", "annotations": {"k3s.io/node-args": ARGUMENTS}}}, {}, "10.77.128.0/17"),
        ({"spec": {"podCIDR": "10.99.7.0/24"}}, {}, "10.99.0.0/16"),
        ({"spec": {}}, {}, "10.42.0.0/16"),
    ],
)
def test_the_pods_network_is_found(node: dict[str, Any], changes: dict[str, Any], pods: str) -> None:
    assert existing.read(k3s({"metadata": {"name": "a"}, **node}, **changes)).pod_cidr == pods


def test_flannel_in_the_agents_is_seen() -> None:
    annotated = {"name": "a", "annotations": {"flannel.alpha.coreos.com/backend-type": "vxlan"}}
    assert existing.read(k3s({"metadata": annotated})).in_agents
    assert not existing.read(
        k3s({"metadata": annotated}, **{"get daemonsets": daemon_sets("kube-flannel-ds")})
    ).in_agents


def test_microk8s_allocates_no_pod_cidrs() -> None:
    found = existing.read(
        k3s(
            {"metadata": {"name": "a", "labels": {"microk8s.io/cluster": "true"}}},
            version={"serverVersion": {"gitVersion": "v1.35.2"}},
        )
    )
    assert (found.kind, found.allocates, found.proxies) == ("microk8s", False, ())
