"""Labs apart, with real packets: namespaces take the places of two labs' nodes, on a host that is set up."""

from __future__ import annotations

import subprocess  # noqa: TID251 - attaches namespaces to OVN's switches, and sends between them
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from test_balancer import CHECKSUMS

from winlab.adapters.overlay import ovn
from winlab.design import spec
from winlab.design.plan import make as plan
from winlab.design.plan.model import NodePlan, Plan
from winlab.design.render.topology import topology
from winlab.host.facts import read_facts
from winlab.supply.images import stock

PORT = 8099  # of the host's service and the nodes'
METADATA = "169.254.169.254"
POD = "10.244.1.7"
SERVE = f"""
import socket, threading
made = socket.create_server(("", {PORT}))
print("listening", flush=True)
while True:
    made.accept()[0].close()
"""
CONNECT = f"import socket, sys; socket.create_connection((sys.argv[1], {PORT}), 3).close()"
# One datagram from an address; heard or not, by whoever listens
SEND = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    made.bind((sys.argv[1], 0))
    for _ in range(5):
        made.sendto(b"x", (sys.argv[2], {PORT}))
"""
HEAR = f"""
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    made.bind(("", {PORT}))
    made.settimeout(5)
    print("listening", flush=True)
    print(made.recvfrom(10)[1][0], flush=True)
"""
PING = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as made:
    made.settimeout(3)
    made.sendto(bytes([8, 0, 0xf7, 0xfd, 0, 1, 0, 1]), (sys.argv[1], 0))
    made.recv(100)
"""


def run(*words: str, check: bool = True) -> bool:
    return subprocess.run(words, check=check, capture_output=not check).returncode == 0


class Places:
    """Labs whose nodes are namespaces."""

    def __init__(self, reach: str) -> None:
        changes = ("workers.os=debian-13", "network.cni=l3", f"network.reach={reach}")
        wanted = spec.load("1-1-1", changes, environment={})
        self.labs: list[Plan] = []
        for number in (1, 2):
            blocks = wanted.network.model_copy(update={"floating_block": 200 + number})
            own = wanted.model_copy(update={"network": blocks})
            self.labs.append(plan.make(own, f"it-r{number}", read_facts(), stock.take(own)))
        self.links: dict[str, str] = {}

    def space(self, node: NodePlan) -> str:
        return f"winlab-{node.domain.removeprefix('winlab-')}"

    def python(self, node: NodePlan | None, code: str, *words: str) -> list[str]:
        """Python in a node, or on the host."""
        return [*(["ip", "netns", "exec", self.space(node)] if node else []), sys.executable, "-c", code, *words]

    @contextmanager
    def attached(self) -> Iterator[Places]:
        with ExitStack() as stack:
            for lab in self.labs:
                stack.callback(_remove, lab.lab)
                with ovn.connect() as northbound:
                    northbound.apply(topology(lab))
                for node in lab.nodes:
                    stack.callback(self._detach, node)
                    self._attach(lab, node)
            run("ovn-nbctl", "--timeout=30", "--wait=hv", "sync")
            for who in [node for lab in self.labs for node in lab.nodes] + [None]:
                stack.enter_context(self.listening(self.python(who, SERVE)))
            yield self

    def _attach(self, lab: Plan, node: NodePlan) -> None:
        space, link = self.space(node), f"vnet-it{len(self.links)}"  # named as libvirt names the devices of guests
        self.links[node.port] = link
        run("ip", "netns", "add", space)
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "-n", space, "link", "set", "eth0", "address", node.mac, "up")
        run("ip", "-n", space, "link", "set", "lo", "up")
        run("ip", "-n", space, "addr", "add", f"{node.address}/24", "dev", "eth0")
        run("ip", "-n", space, "route", "add", "default", "via", lab.network.gateway)
        run(*self.python(node, CHECKSUMS))
        run("ip", "link", "set", link, "up")
        place = f"external_ids:iface-id={node.port}"
        run("ovs-vsctl", "--may-exist", "add-port", "br-int", link, "--", "set", "interface", link, place)

    def _detach(self, node: NodePlan) -> None:
        run("ovs-vsctl", "--if-exists", "del-port", "br-int", self.links.get(node.port, "none"), check=False)
        run("ip", "netns", "del", self.space(node), check=False)

    @contextmanager
    def listening(self, words: list[str]) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "listening\n"
                yield process
            finally:
                process.terminate()

    def reaches(self, node: NodePlan | None, address: str) -> bool:
        """Whether a node, or the host, can open a connection to the service at an address; three attempts."""
        return any(run(*self.python(node, CONNECT, address), check=False) for _ in range(3))

    def hears(self, listener: NodePlan | None, sender: NodePlan, source: str, to: str) -> str:
        """From where a datagram comes that a node sends with this source; empty if it does not arrive."""
        with self.listening(self.python(listener, HEAR)) as process:
            run(*self.python(sender, SEND, source, to))
            assert process.stdout is not None
            return process.stdout.readline().strip()


def _remove(lab: str) -> None:
    with ovn.connect() as northbound:
        northbound.remove(lab)


@pytest.fixture
def metadata() -> Iterator[None]:
    """A metadata service: the host's own listener also has its address."""
    run("ip", "addr", "add", f"{METADATA}/32", "dev", "lo")
    yield
    run("ip", "addr", "del", f"{METADATA}/32", "dev", "lo")


def matrix(places: Places) -> dict[str, bool]:
    """Who reaches whom, from the first lab's worker and from the host."""
    a, b = places.labs
    worker, other = a.nodes[1], b.nodes[1]
    return {
        "host to node": places.reaches(None, worker.floating),
        "node to node": places.reaches(worker, a.nodes[0].address),
        "node to node, by the external address": places.reaches(worker, a.nodes[0].floating),
        "node to other lab": places.reaches(worker, other.floating),
        "other lab to node": places.reaches(other, worker.floating),
        "node to host": places.reaches(worker, a.network.external_gateway),
        "ping": run(*places.python(worker, PING, a.network.external_gateway), check=False),
        "metadata": places.reaches(worker, METADATA),
    }


OPEN = {"host to node", "node to node", "node to node, by the external address", "ping"}


@pytest.mark.usefixtures("host", "metadata")
@pytest.mark.parametrize(
    ("reach", "more"),
    [
        ("internet", set()),
        ("labs", {"node to other lab", "other lab to node"}),
        ("all", {"node to other lab", "other lab to node", "node to host"}),
    ],
)
def test_who_reaches_whom(reach: str, more: set[str]) -> None:
    with Places(reach).attached() as places:
        found = matrix(places)
        assert {name for name, reached in found.items() if reached} == OPEN | more


@pytest.mark.usefixtures("host")
def test_nodes_send_as_themselves_and_as_their_pods() -> None:
    with Places("internet").attached() as places:
        a, _ = places.labs
        controller, worker = a.nodes
        for source in (POD, "10.77.0.200"):
            run("ip", "-n", places.space(worker), "addr", "add", f"{source}/32", "dev", "lo")
        # packets from pods find no way back without a route; one way is enough
        assert places.hears(controller, worker, worker.address, controller.address) == worker.address
        assert places.hears(controller, worker, POD, controller.address) == POD
        assert places.hears(controller, worker, "10.77.0.200", controller.address) == ""


@pytest.mark.usefixtures("host")
def test_a_guest_s_own_device_is_no_way_into_the_host() -> None:
    """On the userspace datapath the kernel also sees the frames; those for the device's own MAC it would take."""
    with Places("internet").attached() as places:
        a, _ = places.labs
        worker = a.nodes[1]
        run("sysctl", "-q", "-w", f"net.ipv4.conf.{places.links[worker.port]}.rp_filter=0")
        mac = Path(f"/sys/class/net/{places.links[worker.port]}/address").read_text(encoding="ascii").strip()
        space = places.space(worker)
        run("ip", "-n", space, "neigh", "replace", a.network.gateway, "lladdr", mac, "dev", "eth0")
        assert places.hears(None, worker, worker.address, a.network.external_gateway) == ""
