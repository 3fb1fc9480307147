"""The rendered conflists, run by the real plug-ins: two nodes and a router made of network namespaces.

The work of a container runtime is done manually: each plug-in gets its part of the conflist on standard input, and the
result of the one before. Nothing stays: addresses are kept in the test's folder, the rest lives in the namespaces.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import shutil
import subprocess  # noqa: TID251 - servers that run beside the test
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from winlab.design import cni
from winlab.design.catalog import versions
from winlab.design.cni.model import NodeNetwork, PodNetwork
from winlab.design.cni.profile import Profile
from winlab.events import Quiet
from winlab.run import CommandError, run
from winlab.supply.artifacts.build.source import BuildSource

MTU = 1442  # of the nodes' NICs: not the usual, so that a default would be seen
LAB = ipaddress.IPv4Network("10.77.0.0/24")
PODS = {"a1": "a", "a2": "a", "b1": "b"}  # each pod and its node

# prints the client, and sends back its data; "udp" refuses to send fragments
SERVER = """
import socket, sys
kind, port = sys.argv[1], int(sys.argv[2])
if kind == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(("", port)); s.setsockopt(0, 10, 2)
    print("ready", flush=True)
    while True:
        data, peer = s.recvfrom(65535); s.sendto(peer[0].encode().ljust(len(data), b"."), peer)
s = socket.create_server(("", port)); print("ready", flush=True)
while True:
    c, peer = s.accept(); c.sendall(peer[0].encode()); c.close()
"""
CLIENT = """
import socket, sys
kind, host, port, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if kind == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.setsockopt(0, 10, 2)
    s.connect((host, port))
    try: s.send(b"x" * size)
    except OSError as error: print("errno", error.errno); sys.exit()
    data = s.recv(65535); print(len(data), data.rstrip(b".").decode())
else:
    s = socket.create_connection((host, port), 5); print(s.recv(100).decode())
"""


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reference plug-ins for Linux, built from their module."""
    chosen = versions.get(None)
    wanted = [program for program in cni.get("l3").programs(chosen.by_name) if program.os == "linux"]
    folder = tmp_path_factory.mktemp("plugins")
    source = BuildSource(chosen.kubernetes)
    for program in wanted:  # the first compiles, with all of its module in Go's cache the others are quick
        shutil.copy(source.obtain(program, Quiet()).path, folder / program.file)
        (folder / program.file).chmod(0o755)
    return folder


def inside(namespace: str, *words: str | Path, stdin: str | None = None, env: dict[str, str] | None = None) -> str:
    return run(["ip", "netns", "exec", namespace, *words], stdin=stdin, env=env, timeout=30).stdout


@dataclass
class World:
    """Namespaces ``PREFIX-NAME``: the router ``r`` with the lab's switch, the nodes ``a`` and ``b``, and the pods."""

    profile: Profile
    network: PodNetwork
    plugins: Path
    folder: Path
    nodes: dict[str, NodeNetwork]
    prefix: str = f"wlcni{os.getpid()}"
    addresses: dict[str, str] = field(default_factory=dict)
    results: dict[str, dict[str, object]] = field(default_factory=dict)

    def ns(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def build(self) -> None:
        for name in ("r", *self.nodes, *PODS):
            run(["ip", "netns", "add", self.ns(name)])
            run(["ip", "-n", self.ns(name), "link", "set", "lo", "up"])
        router = self.ns("r")
        run(["ip", "-n", router, "link", "add", "lab", "type", "bridge"])
        run(["ip", "-n", router, "addr", "add", f"{LAB[1]}/{LAB.prefixlen}", "dev", "lab"])
        run(["ip", "-n", router, "link", "set", "lab", "up"])
        inside(router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0")
        inside(router, "sysctl", "-qw", "net.ipv4.conf.lab.send_redirects=0")
        for name, node in self.nodes.items():
            ns = self.ns(name)
            port = ["type", "veth", "peer", "name", f"to-{name}", "netns", router]
            run(["ip", "-n", ns, "link", "add", "eth0", "mtu", str(MTU), *port])
            run(["ip", "-n", router, "link", "set", f"to-{name}", "master", "lab", "mtu", str(MTU), "up"])
            run(["ip", "-n", ns, "addr", "add", f"{node.address}/{LAB.prefixlen}", "dev", "eth0"])
            run(["ip", "-n", ns, "link", "set", "eth0", "up"])
            run(["ip", "-n", ns, "route", "add", "default", "via", str(LAB[1])])
            inside(ns, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        run(["ip", "-n", router, "link", "set", "lab", "mtu", str(MTU)])
        nodes = list(self.nodes.values())
        for name, node in self.nodes.items():
            for route in self.profile.routes(self.network, nodes)[node.name]:
                run(["ip", "-n", self.ns(name), "route", "add", route.cidr, "via", route.via])
        for route in self.profile.router_routes(self.network, nodes):
            run(["ip", "-n", router, "route", "add", route.cidr, "via", route.via])

    def chain(self, command: str, pod: str, ports: list[dict[str, object]] | None = None) -> None:
        """What a runtime does with the conflist; DEL goes through it backwards, with ADD's result."""
        name = PODS[pod]
        ((_, text),) = self.profile.linux_files(self.network, self.nodes[name]).items()
        conflist = json.loads(text)
        result = self.results.get(pod)
        parts = conflist["plugins"] if command == "ADD" else reversed(conflist["plugins"])
        for part in parts:
            config = {**part, "cniVersion": conflist["cniVersion"], "name": conflist["name"]}
            if "ipam" in config:
                config["ipam"] = {**config["ipam"], "dataDir": str(self.folder / name)}
            if config.get("capabilities", {}).get("portMappings"):
                config["runtimeConfig"] = {"portMappings": ports or []}
            if result is not None:
                config["prevResult"] = result
            said = self.plugin(command, name, pod, part["type"], config)
            result = json.loads(said) if command == "ADD" else result
        if command == "ADD":
            assert result is not None
            self.results[pod] = result
            self.addresses[pod] = result["ips"][0]["address"].split("/")[0]

    def plugin(self, command: str, node: str, pod: str, kind: str, config: dict[str, object]) -> str:
        env = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": pod,
            "CNI_NETNS": f"/run/netns/{self.ns(pod)}",
            "CNI_IFNAME": "lo" if kind == "loopback" else "eth0",
            "CNI_PATH": str(self.plugins),
        }
        return inside(self.ns(node), self.plugins / kind, stdin=json.dumps(config), env=env)

    def link(self, name: str, device: str) -> dict[str, object]:
        (found,) = json.loads(run(["ip", "-j", "-d", "-n", self.ns(name), "link", "show", device]).stdout)
        return dict(found)

    def serve(self, name: str, kind: str, port: int) -> subprocess.Popen[str]:
        words = ["ip", "netns", "exec", self.ns(name), sys.executable, "-c", SERVER, kind, str(port)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def ask(self, name: str, kind: str, host: str, port: int, size: int = 4) -> str:
        return inside(self.ns(name), sys.executable, "-c", CLIENT, kind, host, str(port), str(size)).strip()

    def remove(self) -> None:
        for name in (*PODS, *self.nodes, "r"):
            run(["ip", "netns", "del", self.ns(name)], check=False)


@pytest.fixture(scope="module", params=["l3", "host-gw"])
def world(request: pytest.FixtureRequest, plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    profile = cni.get(request.param)
    network = cni.network(
        profile,
        pod_cidr="10.244.0.0/16",
        service_cidr="10.96.0.0/16",
        lab_cidr=str(LAB),
        external_cidr="192.0.2.0/24",
        mtu=MTU,
        cluster_dns="10.96.0.10",
        cluster_domain="cluster.local",
    )
    nodes = {
        "a": NodeNetwork("controller-1", "linux", str(LAB[11]), "10.244.0.0/24"),
        "b": NodeNetwork("linux-1", "linux", str(LAB[51]), "10.244.3.0/24"),
    }
    made = World(profile, network, plugins, tmp_path_factory.mktemp("ipam"), nodes)
    servers: list[subprocess.Popen[str]] = []
    try:
        made.build()
        for pod in PODS:
            made.plugin("ADD", PODS[pod], pod, "loopback", {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"})
            published = [{"hostPort": 18080, "containerPort": 80, "protocol": "tcp"}] if pod == "a1" else None
            made.chain("ADD", pod, published)
        servers += [made.serve(pod, kind, 80) for pod in PODS for kind in ("udp", "tcp")]
        servers.append(made.serve("a", "tcp", 81))
        yield made
    finally:
        for server in servers:
            server.kill()
            server.wait()
        made.remove()


def test_addresses_come_from_the_nodes_own_share(world: World) -> None:
    for pod, node in PODS.items():
        assert ipaddress.IPv4Address(world.addresses[pod]) in world.nodes[node].pods
    assert len(set(world.addresses.values())) == len(PODS)


def test_pods_have_the_mtu_of_the_nic(world: World) -> None:
    for pod in PODS:
        assert world.link(pod, "eth0")["mtu"] == world.profile.pod_mtu(world.network, "linux") == MTU
    assert world.link("a", "cni0")["mtu"] == MTU


@pytest.mark.parametrize(("client", "server"), [("a1", "a2"), ("a1", "b1"), ("b1", "a1"), ("b1", "a2")])
def test_pods_reach_each_other_as_themselves(world: World, client: str, server: str) -> None:
    own, other = world.addresses[client], world.addresses[server]
    assert world.ask(client, "tcp", other, 80) == own
    full = MTU - 28  # less the headers of IPv4 and UDP
    assert world.ask(client, "udp", other, 80, full) == f"{full} {own}"  # whole, both ways, and not translated
    assert world.ask(client, "udp", other, 80, full + 1) == f"errno {errno.EMSGSIZE}"


def test_nodes_and_pods_reach_each_other(world: World) -> None:
    assert world.ask("b", "tcp", world.addresses["a1"], 80) == world.nodes["b"].address
    assert world.ask("a", "tcp", world.addresses["a1"], 80)  # by its own bridge
    assert world.ask("b1", "tcp", world.nodes["a"].address, 81) == world.addresses["b1"]


def test_a_pod_reaches_itself_by_a_published_port(world: World) -> None:
    assert world.ask("b", "tcp", world.nodes["a"].address, 18080) == world.nodes["b"].address
    assert world.ask("a1", "tcp", world.nodes["a"].address, 18080)  # needs hairpinMode


def test_only_the_routes_connect_the_nodes(world: World) -> None:
    """So that the tests above could fail: without the profile's routes the other node's pods are out of reach."""
    nodes = list(world.nodes.values())
    taken = [("r", route) for route in world.profile.router_routes(world.network, nodes)]
    taken += [("a", route) for route in world.profile.routes(world.network, nodes)[world.nodes["a"].name]]
    assert taken
    try:
        for name, route in taken:
            run(["ip", "-n", world.ns(name), "route", "del", route.cidr])
        with pytest.raises(CommandError):
            world.ask("a1", "tcp", world.addresses["b1"], 80)
    finally:
        for name, route in taken:
            run(["ip", "-n", world.ns(name), "route", "add", route.cidr, "via", route.via])


def test_deleting_a_pod_leaves_nothing(world: World) -> None:
    address = world.addresses["a2"]
    assert (world.folder / "a" / "winlab" / address).exists()
    world.chain("DEL", "a2")
    assert not (world.folder / "a" / "winlab" / address).exists()
    with pytest.raises(CommandError):
        world.link("a2", "eth0")
    world.chain("DEL", "a2")  # a runtime may ask again
    world.chain("ADD", "a2")
    assert world.ask("a1", "tcp", world.addresses["a2"], 80) == world.addresses["a1"]
