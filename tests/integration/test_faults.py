"""Injected faults in a lab's network, with real packets: namespaces replace the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from namespaces import CONNECT, PORT, Places, planned, run

from winlab.adapters.overlay import ovn
from winlab.design import fault, spec
from winlab.design.fault.base import Place, SwitchFault
from winlab.design.plan.node_plan import NodePlan
from winlab.design.system import get

FOLLOW = 60  # seconds
SINK_PORT = 8100
SINK = f"""
import socket, time
made = socket.create_server(("", {SINK_PORT}))
print("listening", flush=True)
peer, _ = made.accept()
count, begun = 0, time.monotonic()
while piece := peer.recv(1 << 16):
    count += len(piece)
print(count * 8 / 1e6 / (time.monotonic() - begun), flush=True)
"""
SOURCE = f"""
import socket, sys, time
end = time.monotonic() + 2
with socket.create_connection((sys.argv[1], {SINK_PORT}), 10) as made:
    while time.monotonic() < end:
        made.sendall(bytes(16384))
"""


# From a pod of one node to a pod of another: the lab's router brings that
CONNECT_PODS = f"import socket, sys; socket.create_connection((sys.argv[2], {PORT}), 3, (sys.argv[1], 0)).close()"


class Lab(Places):
    """One lab with a controller and two workers."""

    def __init__(self) -> None:
        changes = ("workers.os=debian-13", "network.cni=l3")
        wanted = spec.load("1-2-1", changes, environment={})
        self.labs = [planned(wanted, "it-faults")]
        self.links: dict[str, str] = {}

    def put(self, kind: str, *nodes: NodePlan, remove: bool = False, **settings: object) -> None:
        """Add a fault as the command does, or remove it."""
        one = fault.make(kind, [node.name for node in nodes], **settings)
        assert isinstance(one, SwitchFault)
        places = {
            node.name: Place(
                node.name, get(node.os), node.mac, node.port, node.address, node.floating, (self.pods(node),)
            )
            for node in self.labs[0].nodes
        }
        with ovn.connect() as northbound:
            assert northbound.put_fault("it-faults", one.id, "", () if remove else one.rules(places))
            northbound.await_followers(FOLLOW)

    def pods(self, node: NodePlan) -> str:
        """The network of a node's pods."""
        return f"10.244.{self.labs[0].nodes.index(node)}.0/24"

    def pod(self, node: NodePlan) -> str:
        """The address of one of them, which the node's namespace has, too."""
        return self.pods(node).replace("0/24", "5")

    @contextmanager
    def attached(self) -> Iterator[Lab]:
        """The lab's nodes, with pods behind them."""
        with super().attached():
            for node in self.labs[0].nodes:
                run("ip", "-n", self.space(node), "addr", "add", f"{self.pod(node)}/32", "dev", "lo")
            with ovn.connect() as northbound:
                northbound.set_pod_routes("it-faults", {self.pods(node): node.address for node in self.labs[0].nodes})
                northbound.await_followers(FOLLOW)
            yield self

    def between(self, one: NodePlan, other: NodePlan) -> set[bool]:
        """Whether two nodes and their pods reach each other both ways, by all addresses; three attempts each."""
        attempts = []
        for a, b in ((one, other), (other, one)):
            attempts += [self.python(a, CONNECT, address) for address in (b.address, b.floating, self.pod(b))]
            attempts += [self.python(a, CONNECT_PODS, self.pod(a), address) for address in (b.address, self.pod(b))]
        with ThreadPoolExecutor() as pool:  # what is dropped takes seconds to be given up
            return set(pool.map(lambda words: any(run(*words, check=False) for _ in range(3)), attempts))

    def rate(self, sender: NodePlan, to: NodePlan, address: str = "") -> float:
        """Megabits in a second that get from one node to another, by an address of that one."""
        with self.listening(self.python(to, SINK)) as process:
            run(*self.python(sender, SOURCE, address or to.address))
            assert process.stdout is not None
            return float(process.stdout.readline())


@pytest.fixture
def lab(host: None) -> Iterator[Lab]:
    with Lab().attached() as places:
        assert isinstance(places, Lab)
        yield places


def test_nodes_are_apart_and_their_line_is_slow(lab: Lab) -> None:
    controller, one, other = lab.labs[0].nodes
    lab.put("partition", one, controller)
    assert lab.between(one, controller) == {False}
    assert lab.between(one, other) == {True}
    lab.put("partition", one, controller, remove=True)
    lab.put("partition", one)
    assert lab.between(one, controller) == {False}
    assert lab.reaches(None, one.floating)  # the host still gets in
    assert lab.between(controller, other) == {True}
    lab.put("partition", one, remove=True)
    assert lab.between(one, controller) == {True}

    lab.put("bandwidth", one, mbit=2)
    assert lab.rate(one, controller) < 4 < lab.rate(controller, other)
    assert lab.rate(controller, one) < 4
    lab.put("bandwidth", one, mbit=2, remove=True)
    lab.put("bandwidth", one, other, mbit=2)
    assert lab.rate(one, other) < 4 < lab.rate(one, controller)
    assert lab.rate(one, other, lab.pod(other)) < 4
