"""The API address of several controllers: real OVN; network namespaces in place of the guests, each with a server."""

from __future__ import annotations

import subprocess  # noqa: TID251 - makes network namespaces and servers in them
import time
from collections.abc import Iterator

import pytest
from namespaces import CHECKSUMS, planned, run

from winlab.adapters.overlay import ovn
from winlab.design import spec
from winlab.design.render.topology import topology

LAB = "it-lb"
LIMIT = 600  # seconds until OVN must know the live servers: a bound for a test that hangs, not an expectation
SERVER = """
import socketserver, sys
class Handler(socketserver.BaseRequestHandler):
    def handle(self): self.request.sendall(sys.argv[1].encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
server = socketserver.ThreadingTCPServer(("", 6443), Handler)
print("listening", flush=True)
server.serve_forever()
"""
CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], 6443), 5) as connection: print(connection.recv(64).decode())
"""


class Three:
    """Three controllers' places in a lab's network."""

    def __init__(self) -> None:
        wanted = spec.load("3-0-1")
        self.plan = planned(wanted, LAB)
        self.servers: dict[str, subprocess.Popen[str]] = {}

    def inside(self, node: str) -> list[str]:
        return ["ip", "netns", "exec", f"winlab-{LAB}-{node}"]

    def attach(self) -> None:
        with ovn.connect() as northbound:
            northbound.apply(topology(self.plan))
        for number, node in enumerate(self.plan.nodes):
            space, link = f"winlab-{LAB}-{node.name}", f"wl-it-lb{number}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "-n", space, "link", "set", "eth0", "address", node.mac, "up")
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "addr", "add", f"{node.address}/24", "dev", "eth0")
            run("ip", "-n", space, "route", "add", "default", "via", self.plan.network.gateway)
            run(*self.inside(node.name), "python3", "-c", CHECKSUMS)
            run("ip", "link", "set", link, "up")
            run("ovs-vsctl", "add-port", "br-int", link, "--", "set", "interface", link,
                f"external_ids:iface-id={node.port}")  # fmt: skip
            self.start(node.name)

    def start(self, node: str) -> None:
        words = [*self.inside(node), "python3", "-c", SERVER, node]
        self.servers[node] = server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"

    def stop(self, node: str) -> None:
        server = self.servers.pop(node)
        server.terminate()
        server.wait()

    def detach(self) -> None:
        for node in list(self.servers):
            self.stop(node)
        for number, node in enumerate(self.plan.nodes):
            subprocess.run(["ovs-vsctl", "--if-exists", "del-port", "br-int", f"wl-it-lb{number}"], check=False)
            subprocess.run(["ip", "netns", "del", f"winlab-{LAB}-{node.name}"], check=False)
        with ovn.connect() as northbound:
            northbound.remove(LAB)

    def ask(self, address: str, where: str = "") -> str:
        """Who answers at an address; the error, if no one does."""
        words = [*(self.inside(where) if where else []), "python3", "-c", CLIENT, address]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout.strip() or (done.stderr.strip().splitlines() or ["nobody"])[-1]

    def until(self, wanted: set[str], address: str, where: str = "") -> None:
        """Ask until only those have answered twelve times in a row."""
        end, heard = time.monotonic() + LIMIT, ["nobody"]
        while set(heard) != wanted:
            assert time.monotonic() < end, f"{where or 'the host'} heard {heard}"
            heard = []
            while len(heard) < 12 and wanted.issuperset(heard):
                heard.append(self.ask(address, where))


@pytest.fixture(scope="module")
def three(host: None) -> Iterator[Three]:
    made = Three()
    try:
        made.attach()
        yield made
    finally:
        made.detach()


def test_each_controller_reaches_all_of_them(three: Three) -> None:
    """Itself, too: an API server's own node asks by the common address."""
    everybody = {node.name for node in three.plan.nodes}
    for node in sorted(everybody):
        three.until(everybody, three.plan.cluster.endpoint.partition(":")[0], node)


def test_the_host_reaches_all_of_them(three: Three) -> None:
    three.until({node.name for node in three.plan.nodes}, three.plan.cluster.external.partition(":")[0])


def test_no_client_is_sent_to_a_controller_that_is_gone(three: Three) -> None:
    inner = three.plan.cluster.endpoint.partition(":")[0]
    three.stop("controller-1")
    three.until({"controller-2", "controller-3"}, inner, "controller-1")
    three.until({"controller-2", "controller-3"}, three.plan.cluster.external.partition(":")[0])
    three.start("controller-1")
    three.until({"controller-1", "controller-2", "controller-3"}, inner, "controller-2")
