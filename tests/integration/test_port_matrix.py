"""Which ports two labs' guests and the host open to each other, with real guests (without: test_reach.py)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from harness import LAB_A, LAB_B, Labs, On, ask

from winlab.host.facts import read_facts
from winlab.operations.look import find_node
from winlab.site import Site

Place = tuple[str, int]
DNS = 53
LIMIT = 10  # seconds for a connection: emulated nodes are slow, and what is dropped is never refused


def asked(lab: On, *places: Place) -> tuple[list[str], str]:
    """The places that a lab's controller can open a connection to, and what it knows of its own name."""
    every = " ".join(f"{address}/{port}" for address, port in places)
    attempt = f'timeout {LIMIT} bash -c "exec 3<>/dev/tcp/$at" 2>/dev/null && echo $at'
    said = ask(
        lab,
        "controller-1",
        opened=f"for at in {every}; do {attempt}; done",
        itself=f"getent ahostsv4 controller-1.{lab.lab}.winlab.internal",
    )
    return said["opened"].split(), said["itself"]


def names(*places: Place) -> list[str]:
    return [f"{address}/{port}" for address, port in places]


@pytest.fixture
def services() -> Iterator[list[Place]]:
    """What listens on the host: at all of its addresses, as careless services do, and a name server."""
    gateway = read_facts().external_gateway
    with ExitStack() as stack:
        careless = stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        with suppress(OSError):  # the host already runs its own name server
            stack.enter_context(socket.create_server((gateway, DNS)))
        yield [(gateway, careless.getsockname()[1]), (gateway, DNS)]


def test_labs_open_no_port_to_each_other_and_the_host_only_dns(labs: Labs, services: list[Place]) -> None:
    with Site().hypervisors() as hosts:
        worker, controller_a, controller_b = (
            find_node(lab, node, hosts).tag.floating
            for lab, node in ((LAB_A, "node-1"), (LAB_A, "controller-1"), (LAB_B, "controller-1"))
        )
    careless, dns = services
    of_a = [(worker, 22), (worker, 5986), (controller_a, 22), (controller_a, 6443)]
    of_b = [(controller_b, 22)]
    for place in (*of_a, *of_b, careless, dns):
        socket.create_connection(place, 60).close()  # there is something to reach: the host does
    opened, itself = asked(labs.a, *of_b, careless, dns, (worker, 22), (worker, 5986))
    assert opened == names(dns, (worker, 22), (worker, 5986))
    assert itself.startswith("10.77.0.11 ")
    opened, itself = asked(labs.b, *of_a, careless, dns)
    assert opened == names(dns)
    assert itself.startswith("10.77.0.11 ")
