"""Bridges that labs can be attached to, and routes to labs: what is recorded, checked and shown. No root, no network.

With both on a real host: tests/integration/test_attachment.py.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from winlab import settings
from winlab.design.plan.existing import LocalBridge
from winlab.design.plan.facts import HostFacts, Way
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError
from winlab.events import Quiet
from winlab.host import attachment, connect, facts, firewall, routes, subnet
from winlab.host.subnet import Used
from winlab.run import Result

LAB, ROUTER = "10.77.0.0/24", "172.31.240.16"
WAY = Way(router=ROUTER, networks=("192.0.2.5/32", "10.244.0.0/16"))
KNOWN = HostFacts(recorded=True)
BRIDGE = "br-0123456789ab"


class Commands:
    """The commands that were run, and what ``ip`` prints."""

    def __init__(self) -> None:
        self.run_: list[str] = []
        self.prints: dict[str, str] = {}
        self.fails: tuple[str, ...] = ()

    def run(self, words: list[str], **_: object) -> Result:
        line = " ".join(words)
        self.run_.append(line)
        said = next((text for start, text in self.prints.items() if line.startswith(start)), "")
        return Result((), int(line.startswith(self.fails)) if self.fails else 0, said, "", 0.0)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    for module in (attachment, routes):
        monkeypatch.setattr(module, "run", made.run)
    monkeypatch.setattr(subnet, "used_here", lambda _bridge: [])
    monkeypatch.setattr(settings, "network_is_here", lambda: True)
    return made


# -- routes


def route(via: str) -> str:
    return json.dumps([{"dst": LAB, "gateway": via}])


def test_the_rules_of_the_firewall() -> None:
    text = firewall.ruleset("172.31.240.0/20", "system", ways={LAB: WAY})
    rows = [line.strip() for line in text.splitlines() if "a cluster of" in line]
    assert [row.split(" counter")[0] for row in rows] == [
        f'iifname "br-winlab" ip saddr {LAB} ip daddr 192.0.2.5',
        f'oifname "br-winlab" ip saddr 192.0.2.5 ip daddr {LAB}',
        f'iifname "br-winlab" ip saddr {LAB} ip daddr 10.244.0.0/16',
        f'oifname "br-winlab" ip saddr 10.244.0.0/16 ip daddr {LAB}',
    ]
    assert text.index("a cluster of") < text.index("closed to labs")


@pytest.mark.parametrize(
    ("prints", "nodes", "known", "says"),
    [
        ("", ["192.0.2.5"], {LAB: WAY}, "no route to"),
        (route("172.31.240.99"), ["192.0.2.5"], {LAB: WAY}, "no route to"),
        (route(ROUTER), ["192.0.2.5"], {}, "does not let through what 192.0.2.5"),
        (route(ROUTER), ["192.0.2.5", "192.0.2.6"], {LAB: WAY}, "what 192.0.2.6 send"),
        (route(ROUTER), ["192.0.2.5", "10.244.3.4"], {LAB: WAY}, ""),
    ],
)
def test_whether_packets_pass(
    commands: Commands, prints: str, nodes: list[str], known: dict[str, Way], says: str
) -> None:
    commands.prints = {"ip -j route": prints}
    found = routes.trouble(LAB, ROUTER, nodes, KNOWN.model_copy(update={"ways": known}))
    assert (says in found, bool(found)) == (True, bool(says))


@pytest.mark.parametrize(
    ("here", "source"), [("192.0.2.5", " src 192.0.2.5"), ("10.244.3.1", " src 10.244.3.1"), ("192.0.2.7", "")]
)
def test_a_host_that_is_a_node_of_the_cluster_sends_from_its_own_address(
    commands: Commands, here: str, source: str
) -> None:
    known = KNOWN.model_copy(update={"ways": {LAB: WAY}})
    commands.prints = {"ip -j -4 address": json.dumps([{"ifname": "eth0", "addr_info": [{"local": here}]}])}
    routes.ensure(known, Quiet())
    assert commands.run_[-1] == f"ip route replace {LAB} via {ROUTER} dev br-winlab{source}"
    row = {"dst": LAB, "gateway": ROUTER, **({"prefsrc": here} if source else {})}
    commands.prints["ip -j route"] = json.dumps([row])
    del commands.run_[:]
    routes.ensure(known, Quiet())
    assert not [line for line in commands.run_ if "replace" in line]


@pytest.mark.parametrize(
    ("lab", "way"),
    [
        ("nonsense", WAY),
        ("203.0.114.0/24", WAY),
        (LAB, Way(router="192.0.2.1", networks=("192.0.2.5/32",))),
        (LAB, Way(router=ROUTER, networks=("0.0.0.0/0",))),
        (LAB, Way(router=ROUTER, networks=())),
        (LAB, Way(router="", networks=("192.0.2.5/32",))),
    ],
)
def test_routes_that_are_refused(commands: Commands, lab: str, way: Way) -> None:
    with pytest.raises(UsageError) as caught:
        routes.check(lab, way, KNOWN)
    assert "winlab join --check" in caught.value.cure


def test_a_network_that_the_host_reaches_already(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    import ipaddress

    used = Used(ipaddress.IPv4Network("10.77.0.0/16"), "eth0", "route 10.77.0.0/16 dev eth0")
    monkeypatch.setattr(subnet, "used_here", lambda _bridge: [used])
    with pytest.raises(ConflictError, match="already reaches"):
        routes.check(LAB, WAY, KNOWN)


def test_other_firewalls_let_the_cluster_in(commands: Commands) -> None:
    commands.fails = ("iptables -w 10 -C",)
    routes.enter({LAB: WAY}, "docker-user", ("iptables", "DOCKER-USER"), Quiet())
    assert f"iptables -w 10 -I DOCKER-USER -o br-winlab -s 192.0.2.5 -d {LAB}" in commands.run_[1]
    commands.run_.clear()
    routes.enter({LAB: WAY}, "ufw", None, Quiet())
    assert commands.run_[0] == f"ufw route allow out on br-winlab from 192.0.2.5 to {LAB} comment winlab"
    commands.run_.clear()
    routes.withdraw({LAB: WAY}, "ufw", None)
    assert commands.run_[0] == f"ufw route delete allow out on br-winlab from 192.0.2.5 to {LAB}"


# -- the record


@pytest.fixture
def file(tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch) -> list[HostFacts]:
    """The facts that were written, the last one last."""
    written = [KNOWN]
    monkeypatch.setattr(connect, "require_root", lambda _command: None)
    monkeypatch.setattr(connect, "alone", lambda _progress: nullcontext())
    monkeypatch.setattr(connect, "Record", lambda: None)
    monkeypatch.setattr(facts, "read_facts", lambda: written[-1])
    monkeypatch.setattr(facts, "write_facts", written.append)
    monkeypatch.setattr(firewall, "ensure_forwarding", lambda *_: None)
    monkeypatch.setattr(firewall, "found_firewalls", list)
    monkeypatch.setattr(attachment, "ensure", lambda *_: None)
    monkeypatch.setattr(attachment, "undo", lambda *_: None)
    monkeypatch.setattr(attachment, "require", lambda _name: None)
    return written


def test_a_route_is_recorded_and_forgotten(file: list[HostFacts], commands: Commands) -> None:
    connect.route(Quiet(), LAB, WAY)
    assert file[-1].ways == {LAB: WAY}
    assert commands.run_[-1] == f"ip route replace {LAB} via {ROUTER} dev br-winlab"
    connect.route(Quiet(), LAB, None)
    assert file[-1].ways == {}
    with pytest.raises(NotFoundError, match="no route"):
        connect.route(Quiet(), LAB, None)


def test_a_bridge_is_recorded_and_forgotten(file: list[HostFacts]) -> None:
    connect.attach(Quiet(), BRIDGE)
    connect.attach(Quiet(), BRIDGE)
    assert file[-1].attached == (BRIDGE,)
    connect.attach(Quiet(), BRIDGE, undo=True)
    assert file[-1].attached == ()
    assert "attached" not in file[-1].model_dump()
    assert "ways" not in file[-1].model_dump()


def test_a_host_that_was_not_set_up_or_has_joined_a_site(file: list[HostFacts]) -> None:
    file.append(HostFacts())
    with pytest.raises(HostError, match="not set up"):
        connect.attach(Quiet(), BRIDGE)
    file.append(HostFacts(recorded=True, joined="root@h1"))
    with pytest.raises(UsageError, match="on another host"):
        connect.attach(Quiet(), BRIDGE)


# -- bridges


def link(folder: Path, name: str) -> Path:
    (folder / name / "bridge").mkdir(parents=True)
    return folder / name


def test_a_bridge_is_linux_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "LINKS", tmp_path)
    link(tmp_path, BRIDGE)
    attachment.require(BRIDGE)
    for name in ("br-winlab", "../etc", "a,b"):
        with pytest.raises(NotFoundError, match="no Linux bridge"):
            attachment.require(name)


def test_whether_a_bridge_is_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachment, "LINKS", tmp_path)
    assert "any more" in attachment.trouble(BRIDGE)
    bridge = link(tmp_path, BRIDGE)
    assert "not joined" in attachment.trouble(BRIDGE)
    port = tmp_path / attachment._names(BRIDGE)[2] / "brport"
    port.mkdir(parents=True)
    (port / "bridge").symlink_to(bridge)
    assert attachment.trouble(BRIDGE) == ""


def test_names_are_short_enough_for_the_kernel_and_differ() -> None:
    every = {name for bridge in (BRIDGE, "virbr1") for name in attachment._names(bridge)}
    assert len(every) == 6
    assert max(map(len, every)) <= 15


def test_the_bridge_of_a_cluster(commands: Commands) -> None:
    links = [
        {"ifname": "docker0", "addr_info": [{"local": "172.17.0.1", "prefixlen": 16}]},
        {"ifname": BRIDGE, "addr_info": [{"local": "172.18.0.1", "prefixlen": 16}]},
    ]
    commands.prints = {"ip -j -4 addr": json.dumps(links)}
    assert attachment.find(["172.18.0.2", "172.18.0.3"]) == LocalBridge(BRIDGE, "172.18.0.0/16", "172.18.0.1")
    assert attachment.find(["172.18.0.2", "192.0.2.1"]) is None
    assert attachment.find(["172.18.0.1"]) is None  # the host is the node
    assert attachment.find([]) is None
