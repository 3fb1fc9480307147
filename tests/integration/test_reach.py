"""Isolation of labs, with real packets: namespaces replace two labs' nodes, on a host that is set up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from namespaces import Places, run

METADATA = "169.254.169.254"
POD = "10.244.1.7"
PING = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as made:
    made.settimeout(3)
    made.sendto(bytes([8, 0, 0xf7, 0xfd, 0, 1, 0, 1]), (sys.argv[1], 0))
    made.recv(100)
"""


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
        "ping": any(run(*places.python(worker, PING, a.network.external_gateway), check=False) for _ in range(3)),
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
        assert places.hears(controller, worker, "10.77.0.200", controller.address, 5) == ""


@pytest.mark.usefixtures("host")
def test_a_guest_s_own_device_does_not_reach_the_host() -> None:
    """On the userspace datapath the kernel also sees the frames; those for the device's own MAC it would take."""
    with Places("internet").attached() as places:
        a, _ = places.labs
        worker = a.nodes[1]
        run("sysctl", "-q", "-w", f"net.ipv4.conf.{places.links[worker.port]}.rp_filter=0")
        mac = Path(f"/sys/class/net/{places.links[worker.port]}/address").read_text(encoding="ascii").strip()
        space = places.space(worker)
        run("ip", "-n", space, "neigh", "replace", a.network.gateway, "lladdr", mac, "dev", "eth0")
        assert places.hears(None, worker, worker.address, a.network.external_gateway, 5) == ""
