"""Routed and attached labs on a host with OVN: who reaches whom, by which address, and what Docker and kindnet do.

Hosts, the lab's nodes and a container of a cluster are namespaces (tests/hosts). ``h1`` has winlab and a container
network as Docker makes it. ``cluster`` is a node of a cluster on another machine.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from dataclasses import replace

import plans
import pytest
import yaml
from hosts import Host, Hosts, install, within
from hosts.host import WINLAB

from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.existing import ForeignCluster, LocalBridge
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.render.topology import topology

BRIDGE, GATEWAY, CONTAINER = "br-0123456789ab", "172.18.0.1", "172.18.0.2"
PODS, POD = "10.244.5.0/24", "10.244.5.7"
PORT = "8000"
CLUSTER = ForeignCluster(
    server="https://198.51.100.2:6443", advertised="https://198.51.100.2:6443", ca="", version="v1.36.1",
    pod_cidr="10.244.0.0/16", service_cidr="10.96.0.0/16", dns="10.96.0.10", domain="cluster.local", cni=None,
    cni_note="", nodes=("cp",), addresses=("198.51.100.2",),
)  # fmt: skip
IN_CONTAINERS = replace(CLUSTER, addresses=(CONTAINER,), bridge=LocalBridge(BRIDGE, "172.18.0.0/16", GATEWAY))
WRITE = """
import base64, pickle, sys
from winlab.adapters.overlay import ovn
with ovn.connect() as northbound:
    wanted = pickle.loads(base64.b64decode(sys.stdin.read()))
    northbound.apply(wanted)
    assert northbound.has(wanted), northbound.differences(wanted)
"""
REMOVE = """
import sys
from winlab.adapters.overlay import ovn
with ovn.connect() as northbound:
    assert northbound.remove(sys.argv[1])
    assert sys.argv[1] not in northbound.labs()
"""
SERVE = f"""
import socket
with socket.create_server(("", {PORT})) as server:
    while True:
        connection, (address, _) = server.accept()
        connection.sendall(address.encode())
        connection.close()
"""
ASK = f"import socket, sys; print(socket.create_connection((sys.argv[1], {PORT}), 3).recv(99).decode())"
# As Docker 28 drops what is routed to a container (its release notes, moby#49832)
DROP = f"""
table ip raw {{
  chain PREROUTING {{
    type filter hook prerouting priority raw; policy accept;
    iifname != "{BRIDGE}" ip daddr {CONTAINER} counter drop
  }}
}}
"""


def made(facts: HostFacts, lab: str, cluster: ForeignCluster, *changes: str) -> Plan:
    wanted = spec.load("1-1-1", ["workers.os=debian-13", *changes], environment={})
    return making.make(wanted, lab, facts, plans.stock(wanted), cluster)


class Places:
    """The host, a node of the cluster elsewhere, and labs whose only node is a namespace of the host."""

    def __init__(self, host: Host, cluster: Host) -> None:
        self.host, self.cluster = host, cluster
        facts = HostFacts.model_validate(yaml.safe_load(host.run("cat", "/etc/winlab/host.yaml").stdout))
        self.routed = made(facts, "far", CLUSTER, "network.attachment=routed", "network.floating_block=3")
        words = ("network.attachment=attached", "network.cni=host-gw", "network.floating_block=5")
        self.attached = made(facts, "near", IN_CONTAINERS, *words)
        near_docker = replace(CLUSTER, addresses=(CONTAINER,))
        words = ("network.attachment=routed", "network.floating_block=7", "network.cidr=10.78.0.0/24")
        self.docker = made(facts, "docker", near_docker, *words)

    def write(self, plan: Plan) -> None:
        """Write a lab's rows, and plug a namespace in for its node."""
        text = base64.b64encode(pickle.dumps(topology(plan))).decode()
        self.host.run(WINLAB[0], "-c", WRITE, stdin=text)
        (node,) = plan.nodes
        length = plan.network.cidr.partition("/")[2]
        self.plug(plan.lab, f"p{plan.lab}", f"{node.address}/{length}", node.mac)
        self.host.run("ip", "-n", plan.lab, "route", "add", "default", "via", plan.network.gateway)
        set_ = ("--", "set", "Interface", f"p{plan.lab}", f"external_ids:iface-id={node.port}")
        self.host.run("ovs-vsctl", "--may-exist", "add-port", "br-int", f"p{plan.lab}", *set_)
        self.host.run("ovn-nbctl", "--timeout=60", "--wait=hv", "sync")

    def plug(self, space: str, card: str, address: str, mac: str) -> None:
        """A namespace with one network card and a service."""
        run = self.host.run
        run("ip", "netns", "add", space)
        run("ip", "link", "add", card, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", space)
        run("ethtool", "-K", card, "tx", "off")
        run("ip", "netns", "exec", space, "ethtool", "-K", "eth0", "tx", "off")
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "address", "add", address, "dev", "eth0")
        run("ip", "-n", space, "link", "set", "eth0", "up")
        run("ip", "link", "set", card, "up")
        serve(self.host, "ip", "netns", "exec", space)

    def asks(self, who: str, address: str) -> str:
        """The source that a service at an address sees of a namespace of the host; empty if it is not reached."""
        return ask(self.host, address, "ip", "netns", "exec", who)

    def in_space(self, space: str, *words: str, check: bool = True) -> int:
        return self.host.run("ip", "-n", space, *words, check=check).returncode


def serve(host: Host, *enter: str) -> None:
    host.run("sh", "-c", f"setsid {' '.join(enter)} python3 - >/dev/null 2>&1 <<'END' &\n{SERVE}\nEND")


def ask(host: Host, address: str, *enter: str) -> str:
    return host.run(*enter, "python3", "-c", ASK, address, check=False).stdout.strip()


@pytest.fixture(scope="module")
def places() -> Iterator[Places]:
    install()
    with Hosts("h1", "cluster") as hosts:
        host, cluster = hosts.all
        host.winlab("host", "setup", "--trust-python")  # the checkout may be a user's
        host.run("ip", "link", "add", BRIDGE, "type", "bridge")
        host.run("ip", "address", "add", f"{GATEWAY}/16", "dev", BRIDGE)
        host.run("ip", "link", "set", BRIDGE, "up")
        found = Places(host, cluster)
        found.plug("kind", "pkind", f"{CONTAINER}/16", "02:42:ac:12:00:02")
        host.run("ip", "link", "set", "pkind", "master", BRIDGE)
        found.in_space("kind", "route", "add", "default", "via", GATEWAY)
        host.run("nft", "-f", "-", stdin=DROP)
        serve(host)
        serve(cluster)
        yield found
    assert hosts.left() == []


def test_a_routed_lab_and_a_cluster_know_each_other_by_their_own_addresses(places: Places) -> None:
    plan, host, cluster = places.routed, places.host, places.cluster
    (node,) = plan.nodes
    places.write(plan)
    cluster.run("ip", "route", "add", plan.network.cidr, "via", host.address)
    assert ask(cluster, node.address) == ""
    words = ("host", "route", plan.network.cidr, "--via", plan.network.router_external, "--for", "198.51.100.2/32")
    host.winlab(*words)
    within(lambda: ask(cluster, node.address) == cluster.address)
    assert places.asks("far", cluster.address) == node.address
    assert ask(cluster, node.floating) == ""  # no other lab's address, and not this one's
    assert places.asks("far", node.floating) != ""  # translation within the site stays


def test_the_host_s_own_part_survives_what_removes_it(places: Places) -> None:
    plan, host, cluster = places.routed, places.host, places.cluster
    (node,) = plan.nodes
    host.run("ip", "route", "del", plan.network.cidr)
    host.run("nft", "delete", "table", "inet", "winlab")
    host.winlab("host", "setup")
    within(lambda: ask(cluster, node.address) == cluster.address)
    host.winlab("host", "route", plan.network.cidr, "--undo")
    assert ask(cluster, node.address) == ""
    assert plan.network.cidr not in host.run("ip", "route").stdout


def test_docker_drops_what_is_routed_to_a_container(places: Places) -> None:
    plan = places.docker
    (node,) = plan.nodes
    places.write(plan)
    words = ("host", "route", plan.network.cidr, "--via", plan.network.router_external, "--for", f"{CONTAINER}/32")
    places.host.winlab(*words)
    assert places.asks("docker", CONTAINER) == ""
    places.host.run("nft", "delete", "table", "ip", "raw")  # as allow-direct-routing does
    within(lambda: places.asks("docker", CONTAINER) == node.address)
    places.host.run("nft", "-f", "-", stdin=DROP)
    assert places.asks("docker", CONTAINER) == ""


def test_an_attached_lab_and_containers_reach_each_other(places: Places) -> None:
    plan, host = places.attached, places.host
    (node,) = plan.nodes
    places.write(plan)
    assert places.asks("near", CONTAINER) == ""
    host.winlab("host", "attach", BRIDGE)
    within(lambda: places.asks("near", CONTAINER) == node.address)
    assert places.asks("kind", node.address) == CONTAINER
    within(lambda: ask(host, node.floating) != "")  # as any lab's node
    assert places.asks("near", places.cluster.address) != ""  # by the lab's router


def test_kindnet_s_route_needs_the_same_network(places: Places) -> None:
    """It adds ``PODS via NODE``, and ends if that fails (kind's images/kindnetd, routes.go)."""
    (far,), (near,) = places.routed.nodes, places.attached.nodes
    assert places.in_space("kind", "route", "add", PODS, "via", far.address, check=False) != 0
    assert places.in_space("kind", "route", "add", PODS, "via", near.address) == 0
    places.in_space("near", "address", "add", f"{POD}/32", "dev", "lo")
    assert places.asks("kind", POD) == CONTAINER


def test_an_attached_node_reaches_only_the_cluster_there(places: Places) -> None:
    assert places.asks("kind", GATEWAY) != ""  # the host's service, as containers reach it
    assert places.asks("near", GATEWAY) == ""
    places.in_space("near", "route", "add", places.cluster.address, "via", GATEWAY)
    assert places.asks("near", places.cluster.address) == ""  # not past its own router
    places.in_space("near", "route", "del", places.cluster.address)
    places.in_space("near", "address", "add", "172.18.0.99/16", "dev", "eth0")
    enter = ("ip", "netns", "exec", "near", "ping", "-c", "1", "-W", "2", "-I", "172.18.0.99", CONTAINER)
    assert places.host.run(*enter, check=False).returncode != 0  # from no other address


def test_the_joint_is_restored_and_removed(places: Places) -> None:
    host, (node,) = places.host, places.attached.nodes
    (link,) = [one for one in host.run("ls", "/sys/class/net").stdout.split() if one.startswith("wlo-")]
    host.run("ip", "link", "del", link)
    assert places.asks("near", CONTAINER) == ""
    host.winlab("host", "setup")
    within(lambda: places.asks("near", CONTAINER) == node.address)
    host.winlab("host", "attach", BRIDGE, "--undo")
    assert places.asks("near", CONTAINER) == ""
    assert not [one for one in host.run("ovs-vsctl", "list-br").stdout.split() if one.startswith("wlb-")]
    for plan in (places.attached, places.docker, places.routed):
        host.run(WINLAB[0], "-c", REMOVE, plan.lab)
    assert "winlab.far" not in host.run("ovn-nbctl", "list", "Address_Set").stdout
    assert "outport" not in host.run("ovn-nbctl", "list", "ACL").stdout


def test_teardown_leaves_nothing_of_it(places: Places) -> None:
    host = places.host
    host.winlab("host", "attach", BRIDGE)
    host.winlab("host", "teardown", "--yes", "--force")
    links = host.run("ls", "/sys/class/net").stdout.split()
    assert [one for one in links if one.startswith(("wlo-", "wli-", "wlb-", "br-winlab"))] == []
    assert BRIDGE in links
