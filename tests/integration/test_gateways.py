"""The external network of three hosts, and gateways that take over: what is reached, and how long it is silent.

The hosts are namespaces (tests/hosts). Their guests are namespaces, too: only their packets count. A fourth host is
outside of the site. The tests build on each other. The silences are printed; docs/hypervisors-reference.md has a table
of them.
"""

from __future__ import annotations

import re
import subprocess  # noqa: TID251 - pings while something else happens
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import plans
import pytest
import yaml
from guests import guest, plug, write
from hosts import MANAGEMENT, TUNNELS, Host, Hosts, add, install, one_site, within

from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.render import gateways
from winlab.design.render.topology import topology

SERVE = """
import socket
with socket.create_server(("", 8000)) as server:
    while True:
        connection, (address, _) = server.accept()
        connection.sendall(address.encode())
        connection.close()
"""
ASK = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2])), 5).recv(99).decode())"
SEND = "import socket, sys; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', (sys.argv[1], 6081))"


@dataclass
class Site:
    """Three hosts of a site and one outside; ``first`` and ``second`` are the preferred gateways of two labs."""

    hosts: Hosts
    each: list[Host]
    outside: Host
    first: Plan
    second: Plan

    def write(self, plan: Plan) -> list[str]:
        """Write a lab's rows on the first host; returns what differed."""
        return write(self.each[0], plan)

    def active(self, plan: Plan) -> str:
        """The chassis that is the gateway of a lab's router now, says the southbound database."""
        port = f"logical_port=cr-{plan.network.router}-outside"
        words = ("ovn-sbctl", "--bare", "--columns=chassis", "find", "Port_Binding", port)
        return (
            self.each[0]
            .run(
                "sh",
                "-c",
                'ovn-sbctl --bare --columns=name list Chassis "$1"',
                "_",
                self.each[0].run(*words).stdout.strip(),
            )
            .stdout.strip()
        )

    def gateways(self, plan: Plan) -> list[str]:
        """The chassis of a lab's gateways, the preferred one first."""
        columns = ("--bare", "--columns=chassis_name,priority")
        words = (*columns, "find", "Gateway_Chassis", f"external_ids:winlab={plan.lab}")
        said = self.each[0].run("ovn-nbctl", *words).stdout.split("\n\n")
        rows = [row.split() for row in said if row.strip()]
        return [name for name, _ in sorted(rows, key=lambda row: -int(row[1]))]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    install()
    with Hosts("h1", "h2", "h3", "outside") as made:
        *each, outside = made.all
        first = each[0]
        one_site(*each)
        chassis = [chassis_of(host) for host in each]
        facts = HostFacts.model_validate(yaml.safe_load(first.run("cat", "/etc/winlab/host.yaml").stdout))
        labs = [plan_of(facts, name, chassis) for name in (chassis[0], chassis[1])]
        outside.run("sh", "-c", "setsid python3 - >/dev/null 2>&1 <<'END' &\n" + SERVE + "\nEND")
        yield Site(made, each, outside, *labs)
    assert made.left() == []


def plan_of(facts: HostFacts, preferred: str, chassis: list[str]) -> Plan:
    """A lab with a node on each host, whose preferred gateway is that chassis."""
    for number in range(99):
        plan = plans.make(facts, "1-0-1", "linux_workers.count=2", lab=f"lab-{number}")
        nodes = [node.model_copy(update={"hypervisor": f"hypervisor-{i}"}) for i, node in enumerate(plan.nodes, 1)]
        plan = plan.model_copy(update={"nodes": tuple(nodes)})
        if gateways.gateways(topology(plan), chassis)[0] == preferred:
            return plan
    raise AssertionError(preferred)


def chassis_of(host: Host) -> str:
    return host.run("ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:system-id").stdout.strip().strip('"')


def port_to(host: Host) -> str:
    """The port of the external bridge for the tunnel to a host."""
    return "wl-" + "".join(f"{int(part):02x}" for part in host.tunnel_address.split("."))


def external_ports(host: Host) -> set[str]:
    return set(host.run("ovs-vsctl", "list-ports", "br-winlab").stdout.split())


def watched(host: Host) -> set[str]:
    """The tunnels of a host whose other end answers, also those of OVN."""
    words = ("--bare", "--columns=name", "find", "Interface", "bfd_status:state=up")
    return set(host.run("ovs-vsctl", *words).stdout.split())


def answers(host: Host, address: str, *more: str) -> bool:
    return host.run("ping", "-c", "1", "-W", "1", *more, address, check=False).returncode == 0


def silence(host: Host, address: str, act: Callable[[], object]) -> float:
    """The longest time in seconds for which an address does not answer a host, from an act until it answers again."""
    words = host.words("ping", "-n", "-D", "-i", "0.1", "-W", "1", address)
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(words, stdout=said) as pinging:
        time.sleep(2)
        act()
        time.sleep(8)  # it notices
        within(lambda: answers(host, address))
        time.sleep(2)
        host.run("pkill", "-INT", "-x", "ping")
        pinging.wait()
        said.seek(0)
        lines = said.read()
    times = [float(found) for found in re.findall(r"^\[([0-9.]+)\] \d+ bytes from", lines, re.MULTILINE)]
    return max(later - earlier for earlier, later in pairwise(times))


def test_a_host_is_joined_to_one_that_comes_later_without_a_command(site: Site) -> None:
    for host in site.each:
        others = {port_to(one) for one in site.each if one is not host}
        within(lambda host=host, others=others: others <= external_ports(host))
        within(lambda host=host, others=others: others <= watched(host))


def test_two_hosts_have_one_gateway_and_it_stays_when_the_other_loses_power(site: Site) -> None:
    first, second, _ = site.each
    add(first, second)
    site.write(site.second)
    assert site.gateways(site.second) == [chassis_of(first)]
    for host, node in zip(site.each, site.second.nodes, strict=True):
        plug(host, site.second, node)
    address = site.second.nodes[0].floating
    for host in site.each:
        within(lambda host=host: answers(host, address))
    lost = silence(first, address, second.off)
    print(f"\ntwo hosts, the one that is not the gateway loses power: {lost:.1f} s")
    second.on()
    second.winlab("host", "setup")
    plug(second, site.second, site.second.nodes[1])


def test_gateways_of_existing_labs_follow_when_a_hypervisor_is_added(site: Site) -> None:
    add(site.each[0], site.each[2])
    differed = site.write(site.second)
    assert sum(one.startswith("Gateway_Chassis") for one in differed) >= 2
    chassis = [chassis_of(host) for host in site.each]
    assert site.gateways(site.second)[0] == chassis[1]
    assert sorted(site.gateways(site.second)) == sorted(chassis)
    site.write(site.first)
    plug(site.each[2], site.first, site.first.nodes[2])


def test_every_host_reaches_every_floating_address(site: Site) -> None:
    within(lambda: site.active(site.second) == chassis_of(site.each[1]))  # the first gateway may hold it for a moment
    for node in site.second.nodes:
        for host in site.each:
            within(lambda host=host, node=node: answers(host, node.floating))
    for host in site.each:
        within(lambda host=host: answers(host, site.first.nodes[2].floating))
        within(lambda host=host: answers(host, site.second.nodes[2].floating, "-M", "do", "-s", str(1442 - 28)))


def test_the_way_out_is_on_the_gateway_s_host(site: Site) -> None:
    def source(host: Host, name: str) -> str:
        """Who a service outside sees."""
        ask = ("python3", "-c", ASK, site.outside.address, "8000")
        return host.run("ip", "netns", "exec", name, *ask, check=False).stdout.strip()

    for host, node in zip(site.each, site.second.nodes, strict=True):
        name = guest(site.second, node)
        within(lambda host=host, name=name: source(host, name) == site.each[1].address)
    within(lambda: source(site.each[2], guest(site.first, site.first.nodes[2])) == site.each[0].address)


def test_nodes_reach_no_service_and_no_tunnel_of_a_host(site: Site) -> None:
    third, inside = site.each[2], ("ip", "netns", "exec", guest(site.second, site.second.nodes[2]))
    for host in site.each:
        for address in (host.address, host.tunnel_address):
            done = third.run(*inside, "python3", "-c", ASK, address, "22", check=False)
            # a host's own ssh is behind its firewall; to other hosts a node goes out as any client
            assert (done.returncode != 0) == (host is site.each[1] or address == host.tunnel_address)
        third.run(*inside, "python3", "-c", SEND, host.tunnel_address)

    def dropped() -> list[str]:
        rules = site.each[1].run("nft", "list", "table", "inet", "winlab").stdout
        return re.findall(r"udp dport 6081 counter packets (\d+)", rules)

    within(lambda: dropped() == ["1", "2"])  # to the gateway's own host, and to the others


def test_labs_are_not_reached_from_outside(site: Site) -> None:
    address = site.second.nodes[2].floating
    site.outside.run("ip", "route", "add", f"{address}/32", "via", site.each[1].address)
    assert not answers(site.outside, address)


def test_a_floating_address_answers_again_when_its_gateway_s_host_is_gone(site: Site) -> None:
    _, second, third = site.each
    cards = (MANAGEMENT, TUNNELS)
    address = site.second.nodes[2].floating

    def boot(host: Host) -> None:
        host.on()
        host.winlab("host", "setup")

    acts: list[tuple[str, Callable[[], object]]] = [
        ("cut off from all networks", lambda: [second.cut(card) for card in cards]),
        ("joined again", lambda: [second.join(card) for card in cards]),
        ("cut off from tunnels only", lambda: second.cut(TUNNELS)),
        ("joined to them again", lambda: second.join(TUNNELS)),
        ("cut off from OVN's databases only", lambda: second.cut(MANAGEMENT)),
        ("joined to them again", lambda: second.join(MANAGEMENT)),
        ("loses power", second.off),
        ("boots, and is set up", lambda: boot(second)),
    ]
    for what, act in acts:
        print(f"\nthe gateway's host: {what}: {silence(third, address, act):.1f} s", flush=True)
    within(lambda: answers(second, address))
    within(lambda: site.active(site.second) == chassis_of(second))


def test_a_gateway_takes_over_from_the_first_host_without_its_databases(site: Site) -> None:
    first, second, third = site.each
    node = site.first.nodes[2]
    within(lambda: site.active(site.first) == chassis_of(first))
    lost = silence(third, node.floating, first.off)
    print(f"\nthe first host, which is the gateway, loses power: {lost:.1f} s", flush=True)
    ask = ("python3", "-c", ASK, site.outside.address, "8000")
    said = third.run("ip", "netns", "exec", guest(site.first, node), *ask)
    assert said.stdout.strip() in {second.address, third.address}

    def boot() -> None:
        first.on()
        first.winlab("host", "setup")

    print(f"\nit boots, and is set up: {silence(third, node.floating, boot):.1f} s", flush=True)
    for host in site.each:
        within(lambda host=host: answers(host, node.floating))


def test_gateways_follow_when_a_hypervisor_is_removed(site: Site) -> None:
    site.each[0].winlab("hypervisor", "remove", "hypervisor-3")
    site.write(site.second)
    assert site.gateways(site.second) == [chassis_of(site.each[0])]
    for host in site.each:
        within(lambda host=host: answers(host, site.second.nodes[2].floating))


def test_a_host_that_left_has_no_tunnels_and_others_none_to_it(site: Site) -> None:
    first, second, third = site.each
    third.run("ovs-vsctl", "del-br", "br-phy")
    third.winlab("host", "teardown")
    assert "external" not in third.processes()
    for host in (first, second):
        within(lambda host=host: port_to(third) not in external_ports(host))
