"""Which labs reach which, as OVN itself understands the rows: ovn-northd translates them, ovn-trace follows packets.

No root, no host set-up, no traffic. Real packets between real namespaces: test_reach.py.
"""

from __future__ import annotations

import subprocess  # noqa: TID251 - starts OVN's daemons, and asks ovn-trace
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from ovn_database import LIMIT, SCHEMA, Database, _packages, make, program  # noqa: F401 - a fixture, too

from winlab.adapters.overlay import ovn
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology

LOCALNET = "winlab-external-localnet"
WORLD = "192.0.2.1"
METADATA = "169.254.169.254"


class Overlay:
    """OVN without chassis: both databases and northd."""

    def __init__(self, north: str, south: str) -> None:
        self.north, self.south = north, south

    def apply(self, *plans: Plan) -> None:
        with ovn.connect(self.north) as northbound:
            for plan in plans:
                northbound.apply(topology(plan))
        subprocess.run([program("ovn-nbctl"), f"--db={self.north}", "--wait=sb", "sync"], check=True)

    def leaves_by(self, plan: Plan, node: int, to: str, *, source: str = "") -> list[str]:
        """The ports that a packet from a node goes out of, UUIDs by their begin; none if it is dropped."""
        one = plan.nodes[node]
        flow = (
            f'inport == "{one.port}" && eth.src == {one.mac} && eth.dst == {plan.network.gateway_mac} && '
            f"ip4.src == {source or one.address} && ip4.dst == {to} && ip.ttl == 64 && tcp && tcp.dst == 22"
        )
        return self._outputs(plan.network.switch, flow)

    def enters(self, plan: Plan, node: int, source: str) -> bool:
        """Whether a datagram that comes to a node's external address from another one reaches the node."""
        one, router = plan.nodes[node], plan.network.router_external_mac
        flow = (
            f'inport == "{LOCALNET}" && eth.src == 52:54:00:00:00:02 && eth.dst == {router} && '
            f"ip4.src == {source} && ip4.dst == {one.floating} && ip.ttl == 64 && udp && udp.dst == 514"
        )
        return self._outputs("winlab-external", flow) == [short(one)]

    def _outputs(self, switch: str, flow: str) -> list[str]:
        words = [program("ovn-trace"), f"--db={self.south}", "--minimal", switch, flow]
        said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
        return [line.split('"')[1] for line in said.splitlines() if line.strip().startswith("output(")]


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overlay]:
    folder = tmp_path_factory.mktemp("ovn")
    with ExitStack() as stack:

        def start(name: str, *words: object, ready: Callable[[], bool]) -> None:
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = stack.enter_context(subprocess.Popen([*map(str, words)], stdout=log, stderr=log))
            stack.callback(process.terminate)
            end = time.monotonic() + LIMIT
            while not ready():
                assert process.poll() is None, (folder / f"{name}.log").read_text()
                assert time.monotonic() < end, name
                time.sleep(0.05)

        sockets = {}
        for name in ("nb", "sb"):
            schema, file, sockets[name] = (
                SCHEMA.with_name(f"ovn-{name}.ovsschema"),
                folder / name,
                folder / f"{name}.sock",
            )
            subprocess.run([program("ovsdb-tool"), "create", file, schema], check=True)
            remote = f"--remote=punix:{sockets[name]}"
            words = ("ovsdb-server", "--no-chdir", f"--unixctl={folder}/{name}.ctl", remote, file)
            start(name, program(words[0]), *words[1:], ready=sockets[name].exists)
        found = Overlay(f"unix:{sockets['nb']}", f"unix:{sockets['sb']}")
        control = folder / "northd.ctl"
        dbs = (f"--ovnnb-db={found.north}", f"--ovnsb-db={found.south}")
        start("northd", program("ovn-northd"), f"--unixctl={control}", *dbs, ready=control.exists)
        chassis = make("a").host.chassis
        subprocess.run(
            [program("ovn-sbctl"), f"--db={found.south}", "chassis-add", chassis, "geneve", "127.0.0.1"], check=True
        )
        Database(found.north).nbctl(
            *("ls-add", "winlab-external", "--", "lsp-add", "winlab-external", LOCALNET),
            *("--", "lsp-set-type", LOCALNET, "localnet", "--", "lsp-set-addresses", LOCALNET, "unknown"),
            *("--", "lsp-set-options", LOCALNET, "network_name=winlab"),
        )
        yield found


def short(node: NodePlan) -> str:
    """A node's port as ovn-trace writes it."""
    return node.port[:6]


def block(number: int, *changes: str) -> tuple[str, ...]:
    return ("1-1-1", f"network.floating_block={number}", "workers.os=debian-13", *changes)


def test_by_default_a_lab_reaches_the_world_the_host_and_itself(overlay: Overlay) -> None:
    a, b = make("a", *block(3)), make("b", *block(5))
    overlay.apply(a, b)
    for to in (WORLD, a.network.external_gateway):
        assert overlay.leaves_by(a, 0, to) == [LOCALNET], to
    for to in (a.nodes[1].floating, a.nodes[0].floating):  # by the router and back
        assert set(overlay.leaves_by(a, 0, to)) & set(map(short, a.nodes)), to
    for to in (b.network.router_external, b.nodes[0].floating, "172.31.240.2", "172.31.255.254", METADATA):
        assert overlay.leaves_by(a, 1, to) == [], to


def test_two_labs_that_say_so_reach_each_other(overlay: Overlay) -> None:
    a, b = make("a", *block(3, "network.reach=labs")), make("b", *block(5, "network.reach=all"))
    c = make("c", *block(7))
    overlay.apply(a, b, c)
    # no further than to the external switch, where the router would ask for the other one's MAC
    assert overlay.leaves_by(a, 0, b.nodes[1].floating) == [LOCALNET]
    assert overlay.leaves_by(b, 1, a.nodes[0].floating) == [LOCALNET]
    assert overlay.leaves_by(c, 0, a.nodes[0].floating) == []
    assert overlay.enters(a, 0, b.nodes[1].floating)
    assert overlay.enters(b, 1, a.nodes[0].floating)
    # c did not say so: not even a datagram that wants no answer comes in
    for source in (a.nodes[0].floating, a.network.router_external, b.nodes[1].floating):
        assert not overlay.enters(c, 0, source), source
    for source in (WORLD, c.network.external_gateway, c.nodes[1].floating, c.network.router_external):
        assert overlay.enters(c, 0, source), source
    for plan in (a, b):
        assert overlay.leaves_by(plan, 0, METADATA) == []


def test_nodes_send_from_no_other_address(overlay: Overlay) -> None:
    """ovn-trace takes an allowed network for one address: pods are seen in test_reach.py."""
    a = make("a", *block(3))
    overlay.apply(a)
    assert overlay.leaves_by(a, 1, WORLD) == [LOCALNET]
    for source in (a.nodes[0].address, "10.77.0.200", "172.31.240.1", "198.51.100.1"):
        assert overlay.leaves_by(a, 1, WORLD, source=source) == [], source
    node = a.nodes[1].model_copy(update={"mac": "52:54:00:00:00:01"})
    assert overlay.leaves_by(a.model_copy(update={"nodes": (node,)}), 0, WORLD) == []
