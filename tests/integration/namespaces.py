"""Namespaces in place of labs' nodes, on the switches of OVN on a host that is set up: they send real packets."""

from __future__ import annotations

import subprocess  # noqa: TID251 - attaches namespaces to OVN's switches, and sends between them
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from winlab.adapters.overlay import ovn
from winlab.design import spec
from winlab.design.plan import addresses
from winlab.design.plan import make as plan
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology
from winlab.host.facts import read_facts
from winlab.supply.images import stock

PORT = 8099  # of the host's service and the nodes'
SERVE = f"""
import socket, threading
made = socket.create_server(("", {PORT}))
print("listening", flush=True)
while True:
    made.accept()[0].close()
"""
CONNECT = f"import socket, sys; socket.create_connection((sys.argv[1], {PORT}), 3).close()"
# Datagrams from an address, with a mark; the listener prints where the first one with this mark came from.
# Without the mark it would take a late one of the call before for its own.
SEND = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    made.bind((sys.argv[1], 0))
    for _ in range(5):
        made.sendto(sys.argv[3].encode(), (sys.argv[2], {PORT}))
"""
HEAR = f"""
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
    made.bind(("", {PORT}))
    made.settimeout(float(sys.argv[2]))
    print("listening", flush=True)
    heard = b""
    while heard != sys.argv[1].encode():
        heard, sender = made.recvfrom(100)
    print(sender[0], flush=True)
"""
# A virtual link leaves checksums to hardware that it does not have: SIOCETHTOOL, ETHTOOL_STXCSUM 0
CHECKSUMS = """
import array, fcntl, socket, struct
off = array.array("B", struct.pack("II", 0x17, 0))
request = struct.pack("16sP", b"eth0", off.buffer_info()[0])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket: fcntl.ioctl(any_socket, 0x8946, request)
"""


def run(*words: str, check: bool = True) -> bool:
    return subprocess.run(words, check=check, capture_output=not check).returncode == 0


def planned(wanted: spec.Spec, lab: str, *others: Plan) -> Plan:
    """A lab with external addresses that no other one has."""
    facts = read_facts()
    with ovn.connect() as northbound:
        taken = northbound.taken(lab) | {one.network.router_external for one in others}
    blocks = frozenset(addresses.blocks(facts.external_cidr, taken))
    return plan.make(wanted, lab, facts, stock.take(wanted).model_copy(update={"blocks": blocks}))


class Places:
    """Labs whose nodes are namespaces."""

    def __init__(self, reach: str) -> None:
        changes = ("workers.os=debian-13", "network.cni=l3", f"network.reach={reach}")
        wanted = spec.load("1-1-1", changes, environment={})
        first = planned(wanted, "it-r1")
        self.labs = [first, planned(wanted, "it-r2", first)]
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
        run("ip", "link", "del", self.links.get(node.port, "none"), check=False)  # at once: a namespace goes later
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

    def hears(self, listener: NodePlan | None, sender: NodePlan, source: str, to: str, limit: float = 60) -> str:
        """From where a datagram comes that a node sends with this source; empty if none arrives within the limit."""
        mark = f"{sender.name} as {source}"
        with self.listening(self.python(listener, HEAR, mark, str(limit))) as process:
            run(*self.python(sender, SEND, source, to, mark))
            assert process.stdout is not None
            return process.stdout.readline().strip()


def _remove(lab: str) -> None:
    with ovn.connect() as northbound:
        northbound.remove(lab)
