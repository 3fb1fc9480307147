"""The two halves of each CNI profile, the choice of profiles, and the paths of packets."""

import ipaddress

import pytest
from cni_networks import ALL, LINUX, NODES, VERSIONS, WINDOWS, conflist, make
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from winlab.design import cni
from winlab.design.catalog import versions
from winlab.design.catalog.artifact import Program
from winlab.design.cni import checks
from winlab.design.cni.model import NodeNetwork, Route
from winlab.design.spec.model import Network
from winlab.errors import UsageError, WinlabError

ROUTED = ["l3", "host-gw"]
REFERENCE = [*ROUTED, "flannel-vxlan"]  # profiles whose conflists winlab writes

# The JSON names that the plug-ins read; encoding/json ignores all others without a word.
NETCONF = {"cniVersion", "name", "type", "capabilities", "ipam", "dns"}  # containernetworking/cni pkg/types/types.go
KNOWN = {
    # containernetworking/plugins v1.9.1, plugins/main/bridge/bridge.go
    "bridge": NETCONF
    | {
        "bridge",
        "isGateway",
        "isDefaultGateway",
        "forceAddress",
        "ipMasq",
        "ipMasqBackend",
        "mtu",
        "hairpinMode",
        "promiscMode",
        "vlan",
    },
    # plugins/meta/portmap/main.go
    "portmap": NETCONF | {"backend", "snat", "conditionsV4", "conditionsV6", "masqAll"},
    # pkg/hns/netconf_windows.go, plugins/main/windows/win-bridge/win-bridge_windows.go
    "win-bridge": NETCONF | {"apiVersion", "policies", "runtimeConfig", "loopbackDSR", "ipMasqNetwork"},
    # plugins/main/windows/win-overlay/win-overlay_windows.go
    "win-overlay": NETCONF | {"apiVersion", "policies", "runtimeConfig", "loopbackDSR", "ipMasq", "endpointMacPrefix"},
}
IPAM = {"type", "routes", "dataDir", "resolvConf", "ranges"}  # plugins/ipam/host-local/backend/allocator/config.go
RANGE = {"rangeStart", "rangeEnd", "subnet", "gateway"}
DNS = {"nameservers", "domain", "search", "options"}
# Microsoft/hcsshim v0.13.0, hcn/hcnpolicy.go: EndpointPolicyType and the fields of its settings
POLICIES = {
    "OutBoundNAT": {"VirtualIP", "Exceptions", "Destinations", "Flags", "MaxPortPoolUsage"},
    "SDNRoute": {"DestinationPrefix", "NextHop", "NeedEncap"},
    "ProviderAddress": {"ProviderAddress"},
}


def halves(name, network, linux=LINUX, windows=WINDOWS):
    profile = cni.get(name)
    return (
        conflist(profile.linux_files(network, linux)),
        conflist(profile.windows_files(network, windows)),
    )


def policies(windows, kind):
    (plugin,) = windows["plugins"]
    return [p["value"]["Settings"] for p in plugin["policies"] if p["value"]["Type"] == kind]


# --- choice


def test_the_spec_accepts_exactly_these():
    for name in ALL:
        assert Network(cni=name).cni == name
    with pytest.raises(ValidationError, match="there is no CNI profile 'cilium'; choose from calico-vxlan, calico-bgp"):
        Network(cni="cilium")
    assert Network.model_json_schema()["properties"]["cni"]["anyOf"][0]["enum"] == ALL


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(UsageError) as error:
        cni.get("cilium")
    assert "cilium" in error.value.what
    assert all(name in error.value.cure for name in ALL)


@pytest.mark.parametrize("name", ["calico-vxlan", "calico-bgp", "flannel-vxlan"])
def test_a_profile_that_cannot_be_rehearsed_is_refused_with_alternatives(name):
    with pytest.raises(UsageError, match=name) as error:
        cni.require_rehearsal(cni.get(name))
    assert error.value.why
    assert "host-gw or l3" in error.value.cure


@pytest.mark.parametrize("name", ROUTED)
def test_profiles_that_can_be_rehearsed(name):
    cni.require_rehearsal(cni.get(name))


@pytest.mark.parametrize("name", ALL)
def test_support_is_stated_for_each_system(name):
    profile = cni.get(name)
    for release in ("2022",) if name == "flannel-vxlan" else ("2019", "2022"):
        assert profile.support(release).level in ("supported", "experimental")
        cni.require_support(profile, release)
    with pytest.raises(UsageError) as error:
        cni.require_support(profile, "2016")
    assert "2016" in error.value.why


def test_only_calico_on_2022_is_supported_by_its_makers():
    levels = {
        (name, release): cni.get(name).support(release).level for name in ALL for release in ("2019", "2022", "2025")
    }
    assert {key for key, level in levels.items() if level == "supported"} == {
        ("calico-vxlan", "2022"),
        ("calico-bgp", "2022"),
    }
    assert {key for key, level in levels.items() if level == "refused"} == {
        ("calico-bgp", "2025"),
        ("flannel-vxlan", "2019"),
        ("flannel-vxlan", "2025"),
    }


def test_profiles_are_known_good_exactly_where_they_are_accepted():
    releases = {release for name in ALL for row in cni.get(name).known.windows[name].values() for release in row}
    assert releases == set(versions.load().windows)
    for row in versions.load().combinations:
        # a profile's project may need a release of its own for a new Kubernetes; then the minor is not in its file
        every = {name: cni.get(name).known.windows[name].get(row.name) for name in ALL}
        said = {name: set(releases) for name, releases in every.items() if releases is not None}
        assert {"l3", "host-gw"} <= set(said)
        known = set().union(*said.values())
        for name in said:
            able = {one for one in known if cni.get(name).support(one).level != "refused"}
            assert said[name] == able, (name, row.name)


# --- both halves agree


@st.composite
def networks(draw):
    """A pod network, its services' network, MTU, and the shares of two nodes; none of them overlap."""
    first, second = draw(st.permutations([10, 172, 100]))[:2]
    pods = ipaddress.IPv4Network(f"{first}.{draw(st.integers(16, 31))}.0.0/{draw(st.integers(16, 22))}")
    services = ipaddress.IPv4Network(f"{second}.{draw(st.integers(64, 95))}.0.0/{draw(st.integers(16, 28))}")
    shares = list(pods.subnets(new_prefix=24))
    one, two = draw(st.permutations(range(len(shares))))[:2] if len(shares) < 9 else (1, draw(st.integers(2, 7)))
    changes = {"pod_cidr": str(pods), "service_cidr": str(services), "mtu": draw(st.integers(1500, 9000))}
    return changes, str(shares[one]), str(shares[two])


@pytest.mark.parametrize("name", REFERENCE)
@given(drawn=networks())
def test_both_halves_agree(name, drawn):
    changes, linux_share, windows_share = drawn
    profile = cni.get(name)
    network = make(name, **changes, lab_cidr="192.168.7.0/24")
    linux_node = NodeNetwork("controller-1", "linux", "192.168.7.11", linux_share)
    windows_node = NodeNetwork("node-1", "windows", "192.168.7.101", windows_share)
    assert checks.problems(profile, network, [linux_node, windows_node]) == []
    linux, windows = halves(name, network, linux_node, windows_node)

    # each takes its addresses from its own share of the same network
    for half, share in ((linux, linux_share), (windows, windows_share)):
        (((entry,),),) = [half["plugins"][0]["ipam"]["ranges"]]
        assert entry["subnet"] == share
        assert ipaddress.IPv4Network(share).subnet_of(ipaddress.IPv4Network(network.pod_cidr))
    # the same destinations see a pod's own address
    (nat,) = policies(windows, "OutBoundNAT")
    assert nat["Exceptions"] == list(profile.exceptions(network))
    assert {network.pod_cidr, network.service_cidr} <= set(nat["Exceptions"])
    masquerade = profile.masquerade(network)
    if masquerade is not None:
        assert masquerade.source == network.pod_cidr
        assert list(masquerade.exceptions) == nat["Exceptions"]
    # services are never routed past the load balancer
    assert network.service_cidr in {route["DestinationPrefix"] for route in policies(windows, "SDNRoute")}
    # names
    assert windows["plugins"][0]["dns"]["nameservers"] == [network.cluster_dns]
    assert ipaddress.IPv4Address(network.cluster_dns) in ipaddress.IPv4Network(network.service_cidr)
    # the largest packet
    room = 50 if profile.encapsulation == "vxlan" else 0
    assert linux["plugins"][0]["mtu"] == network.mtu - room == profile.pod_mtu(network, "linux")
    assert profile.pod_mtu(network, "windows") == 1450
    assert profile.pod_mtu(network, "windows") + room <= network.mtu


@pytest.mark.parametrize("name", ["calico-vxlan", "flannel-vxlan"])
def test_windows_supports_vxlan(name):
    network = make(name)
    assert (network.encapsulation, network.vni, network.port) == ("vxlan", 4096, 4789)


@pytest.mark.parametrize("name", ["calico-bgp", "l3", "host-gw"])
def test_without_encapsulation_a_network_has_no_vni(name):
    network = make(name)
    assert (network.encapsulation, network.vni, network.port) == ("none", None, None)


# --- what the plug-ins read


@pytest.mark.parametrize("name", REFERENCE)
def test_conflists_have_no_field_that_the_plugin_does_not_read(name):
    for half in halves(name, make(name)):
        assert set(half) == {"cniVersion", "name", "plugins"}
        for plugin in half["plugins"]:
            assert set(plugin) <= KNOWN[plugin["type"]]
            ipam = plugin.get("ipam", {})
            assert set(ipam) <= IPAM
            assert all(set(entry) <= RANGE for ranges in ipam.get("ranges", []) for entry in ranges)
            assert set(plugin.get("dns", {})) <= DNS
            for policy in plugin.get("policies", []):
                assert set(policy) == {"name", "value"}
                assert policy["name"] == "EndpointPolicy"
                assert set(policy["value"]) == {"Type", "Settings"}  # the form of apiVersion 2
                assert set(policy["value"]["Settings"]) <= POLICIES[policy["value"]["Type"]]
            if plugin["type"].startswith("win-"):
                assert plugin["apiVersion"] == 2


@pytest.mark.parametrize("name", ROUTED)
def test_a_linux_conflist(name):
    linux, _ = halves(name, make(name))
    bridge, portmap = linux["plugins"]
    assert bridge["isGateway"]
    assert bridge["hairpinMode"]
    assert not bridge["ipMasq"]
    assert bridge["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}]
    assert portmap == {"type": "portmap", "capabilities": {"portMappings": True}}


@pytest.mark.parametrize("name", ROUTED)
def test_win_bridge_finds_the_hns_network_and_its_gateway(name):
    profile = cni.get(name)
    network = make(name)
    _, windows = halves(name, network)
    made = profile.hns_network(network, WINDOWS)
    assert made is not None
    assert made["type"] == "L2Bridge"  # anything else win-bridge refuses
    assert windows["name"] == made["name"] == profile.proxy_network(network, WINDOWS).hns_network
    assert (made["subnet"], made["gateway"]) == ("10.244.1.0/24", "10.244.1.1")
    # win-bridge sends pods to the network's address + 2, and host-local must not give that away
    assert made["endpoint"]["address"] == "10.244.1.2"
    assert windows["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.3"}]]
    assert made["node_address"] == "10.77.0.101"
    assert {"DestinationPrefix": "10.77.0.101/32", "NeedEncap": True} in policies(windows, "SDNRoute")


def test_win_overlay_finds_flannels_hns_network():
    network = make("flannel-vxlan")
    profile = cni.get("flannel-vxlan")
    _, windows = halves("flannel-vxlan", network)
    assert windows["plugins"][0]["type"] == "win-overlay"
    assert windows["name"] == profile.proxy_network(network, WINDOWS).hns_network == "flannel.4096"
    assert profile.hns_network(network, WINDOWS) is None  # flanneld makes it
    # kube-proxy's source address is one that no pod gets
    assert profile.proxy_network(network, WINDOWS).source_vip == "10.244.1.2"
    assert windows["plugins"][0]["ipam"]["ranges"][0][0]["rangeStart"] == "10.244.1.3"


@pytest.mark.parametrize("name", ROUTED)
def test_a_node_without_a_pod_cidr_is_named(name):
    node = NodeNetwork("node-9", "windows", "10.77.0.109")
    network = make(name)
    for ask in (cni.get(name).windows_files, cni.get(name).hns_network):
        with pytest.raises(WinlabError, match="node-9") as error:
            ask(network, node)
        assert error.value.cure


# --- routes

SECOND = NodeNetwork("node-2", "windows", "10.77.0.102", "10.244.2.0/24")


def test_l3_leaves_all_routes_to_the_router():
    profile, network = cni.get("l3"), make("l3")
    assert profile.routes(network, NODES) == {"controller-1": [], "node-1": []}
    assert profile.router_routes(network, [WINDOWS, LINUX]) == [
        Route("10.244.0.0/24", "10.77.0.11"),
        Route("10.244.1.0/24", "10.77.0.101"),
    ]
    assert profile.router_snat(network) == ("10.244.0.0/16",)
    assert profile.masquerade(network) is None


def test_host_gw_leaves_none_to_the_router():
    profile, network = cni.get("host-gw"), make("host-gw")
    routes = profile.routes(network, [*NODES, SECOND])
    assert routes["node-1"] == [Route("10.244.0.0/24", "10.77.0.11"), Route("10.244.2.0/24", "10.77.0.102")]
    assert all(node.address not in {route.via for route in routes[node.name]} for node in [*NODES, SECOND])
    assert profile.router_routes(network, NODES) == []
    assert profile.router_snat(network) == ()
    masquerade = profile.masquerade(network)
    assert masquerade is not None
    assert masquerade.exceptions == ("10.244.0.0/16", "10.96.0.0/16", "10.77.0.0/24")


def test_kube_proxy_gets_a_source_address_on_overlays_alone():
    for name in ALL:
        proxy = cni.get(name).proxy_network(make(name), WINDOWS)
        given_one = proxy.source_vip is not None or proxy.source_endpoint is not None
        assert given_one == (cni.get(name).encapsulation == "vxlan"), name
    assert cni.get("calico-vxlan").proxy_network(make("calico-vxlan"), WINDOWS).source_endpoint == "Calico_ep"


def test_only_bgp_needs_routing_on_windows():
    assert {name: cni.get(name).windows_features() for name in ALL} == {
        name: ("Containers",) for name in ALL if name != "calico-bgp"
    } | {"calico-bgp": ("Containers", "RemoteAccess", "RSAT-RemoteAccess-PowerShell", "Routing")}


# --- what is obtained


@pytest.mark.parametrize("name", REFERENCE)
def test_every_plugin_of_a_conflist_is_obtained(name):
    programs = set(cni.get(name).programs(VERSIONS))
    for os, half in zip(("linux", "windows"), halves(name, make(name)), strict=True):
        for plugin in half["plugins"]:
            assert Program(plugin["type"], "1.9.1", os) in programs
            if "ipam" in plugin:
                assert Program(plugin["ipam"]["type"], "1.9.1", os) in programs
    assert Program("loopback", "1.9.1", "linux") in programs  # containerd runs it for each sandbox


def test_the_same_network_gives_the_same_bytes():
    first, second = (cni.get("l3").windows_files(make("l3"), WINDOWS) for _ in range(2))
    assert first == second
