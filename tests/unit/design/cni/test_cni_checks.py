"""Pod networks that can't work are refused with all reasons and cures."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from winlab.design import cni
from winlab.design.cni import checks
from winlab.design.cni.model import NodeNetwork
from winlab.errors import UsageError

NODES = [
    NodeNetwork("controller-1", "linux", "10.77.0.11", "10.244.0.0/24"),
    NodeNetwork("node-1", "windows", "10.77.0.101", "10.244.1.0/24"),
]


def make(name="l3", **changes):
    settings = {
        "pod_cidr": "10.244.0.0/16",
        "service_cidr": "10.96.0.0/16",
        "lab_cidr": "10.77.0.0/24",
        "external_cidr": "192.0.2.0/24",
        "mtu": 1500,
        "cluster_dns": "10.96.0.10",
        "cluster_domain": "cluster.local",
    }
    return cni.network(cni.get(name), **(settings | changes))


def found(network, nodes=NODES, name=None):
    return checks.problems(cni.get(name or network.profile), network, nodes)


def only(network, nodes=NODES):
    (problem,) = found(network, nodes)
    assert problem.cure
    return problem


@pytest.mark.parametrize("name", cni.names())
def test_the_default_network_is_right(name):
    checks.check(cni.get(name), make(name), NODES)
    checks.check(cni.get(name), make(name, service_cidr="10.96.0.0/12"), NODES)


@pytest.mark.parametrize(
    ("changes", "one", "other"),
    [
        (
            {"service_cidr": "10.244.128.0/20", "cluster_dns": "10.244.128.10"},
            "kubernetes.pod_cidr",
            "kubernetes.service_cidr",
        ),
        ({"lab_cidr": "10.96.7.0/24"}, "kubernetes.service_cidr", "network.cidr"),
        ({"external_cidr": "10.77.0.128/25"}, "network.cidr", "--external-cidr"),
    ],
)
def test_overlaps_name_both_settings(changes, one, other):
    nodes = [replace(node, address=node.address.replace("10.77.0", "10.96.7")) for node in NODES]
    problem = only(make(**changes), nodes if "lab_cidr" in changes else NODES)
    assert "overlap" in problem.what
    assert one in problem.cure
    assert other in problem.cure


@given(prefix=st.integers(8, 30), count=st.integers(1, 60))
def test_each_node_needs_its_share_of_the_pods(prefix, count):
    nodes = [NodeNetwork(f"node-{index}", "linux", f"10.77.0.{index + 100}") for index in range(count)]
    sizes = [p for p in found(make(pod_cidr=f"172.0.0.0/{prefix}"), nodes) if "too small" in p.what]
    assert bool(sizes) == (prefix > 24 or 2 ** (24 - prefix) < count)
    for problem in sizes:
        cure = int(problem.cure.split("/")[1].split()[0])
        assert 2 ** (24 - cure) >= count > 2 ** (24 - cure - 1)


@pytest.mark.parametrize("text", ["fd00::/56", "10.244.0.1/16", "pods", "10.244.0.0/40"])
def test_malformed_networks(text):
    problem = only(make(pod_cidr=text))
    assert text.split("/")[0] in problem.what
    assert "kubernetes.pod_cidr" in problem.cure
    assert ("IPv6" in problem.what) == (text == "fd00::/56")


@pytest.mark.parametrize("text", ["10.0.0.0/11", "10.96.0.0/29"])
def test_services_of_a_wrong_size(text):
    network = make(service_cidr=text, lab_cidr="192.168.7.0/24", pod_cidr="172.16.0.0/16")
    nodes = [NodeNetwork("node-1", "linux", "192.168.7.9")]
    assert "/12 to /28" in only(network, nodes).cure


@pytest.mark.parametrize("dns", ["10.96.0.1", "10.97.0.10", "10.96.255.255", "name"])
def test_the_name_server_is_a_free_service_address(dns):
    assert "10.96.0.10" in only(replace(make(), cluster_dns=dns)).cure


@pytest.mark.parametrize("domain", ["", "Cluster.local", "a..b", "-a.b", "a" * 64])
def test_the_domain(domain):
    assert "domain" in only(make(cluster_domain=domain)).what


@pytest.mark.parametrize(
    ("name", "least"), [("l3", 1450), ("host-gw", 1450), ("calico-bgp", 1450), ("calico-vxlan", 1500)]
)
def test_windows_pods_do_not_shrink_with_the_nic(name, least):
    assert found(make(name, mtu=least)) == []
    assert str(least) in only(make(name, mtu=least - 1)).cure
    assert found(make(name, mtu=least - 1), NODES[:1]) == []  # Linux alone can do with less


@pytest.mark.parametrize("mtu", [1279, 9001])
def test_the_mtu_has_limits(mtu):
    assert "1280 to 9000" in only(make(mtu=mtu), NODES[:1]).cure


@pytest.mark.parametrize("name", ["calico-vxlan", "flannel-vxlan"])
def test_vnis_and_ports_that_windows_cannot_do(name):
    good = make(name)
    for network in (replace(good, vni=1), replace(good, vni=1 << 24), replace(good, vni=None)):
        assert any("VNI" in problem.what for problem in found(network))
    assert "4789" in only(replace(good, port=8472)).cure


def test_calicos_vni_is_fixed_and_flannels_is_not():
    assert only(replace(make("calico-vxlan"), vni=5000)).what == "Calico uses the VNI 4096, not 5000."
    assert found(replace(make("flannel-vxlan"), vni=5000)) == []


def test_a_network_made_for_another_profile():
    assert "encapsulation" in found(make("l3"), name="calico-vxlan")[0].what


def test_nodes_outside_the_lab_or_with_others_pods():
    stray = replace(NODES[1], address="10.78.0.5")
    assert "node-1" in only(make(), [NODES[0], stray]).what
    assert "outside" in only(make(), [NODES[0], replace(NODES[1], pod_cidr="10.245.0.0/24")]).what
    assert "overlap" in only(make(), [NODES[0], replace(NODES[1], pod_cidr="10.244.0.128/25")]).what


def test_all_problems_are_reported_at_once():
    network = make("calico-vxlan", pod_cidr="fd00::/56", service_cidr="10.77.0.0/24", mtu=1400)
    with pytest.raises(UsageError) as error:
        checks.check(cni.get("calico-vxlan"), network, NODES)
    assert "calico-vxlan" in error.value.what
    for part in ("IPv6", "overlap", "1450 bytes"):
        assert part in error.value.why
    for part in ("kubernetes.pod_cidr", "kubernetes.service_cidr", "network.mtu"):
        assert part in error.value.cure
