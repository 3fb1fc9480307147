"""The stand-in's firewall: it refuses the same connections as Windows."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from winlab_standin.guest import bootstrap, clusterplayers, firewall, node, winrmd
from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.paths import Drives
from winlab_standin.guest.registry import Registry
from winlab_standin.guest.shell import Shell, Streams
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World

FIRST = r"HKLM\SOFTWARE\Policies\Microsoft\Windows NT\CurrentVersion\NetworkList\Signatures\FirstNetwork"


@pytest.fixture
def world(tmp_path: Path) -> World:
    (tmp_path / "c/Windows").mkdir(parents=True)
    return World(Drives({"C": tmp_path / "c"}), Registry(tmp_path / "registry.json"))


def execute(world: World, line: str) -> tuple[int, str]:
    said: list[str] = []
    return Shell(world, COMMANDS).run(line, Streams(said.append, said.append)), "".join(said)


def test_a_network_is_public_until_something_makes_it_private(world: World) -> None:
    assert firewall.category(world.registry) == firewall.PUBLIC
    execute(world, f'reg.exe add "{FIRST}" /v Category /t REG_DWORD /d 1 /f')  # as the answer file says
    assert firewall.category(world.registry) == firewall.PRIVATE
    firewall.set_category(world.registry, firewall.PUBLIC)
    assert firewall.category(world.registry) == firewall.PUBLIC


def test_without_a_rule_nothing_is_accepted(world: World) -> None:
    assert not firewall.allows(world.registry, 5986)
    firewall.add_rule(world.registry, "winlab-winrm", "5986", "winlab: WinRM over HTTPS")
    assert firewall.allows(world.registry, 5986)
    assert not firewall.allows(world.registry, 22)


def test_a_rule_for_the_private_profile_does_not_hold_in_the_public_one(world: World) -> None:
    """What cut predecessors off when a virtual switch was made: the network was a new one, and Public."""
    rules = r"HKLM\SYSTEM\CurrentControlSet\Services\SharedAccess\Parameters\FirewallPolicy\FirewallRules"
    rule = "v2.31^|Action=Allow^|Active=TRUE^|Dir=In^|Protocol=6^|Profile=Private^|LPort=5986^|Name=own^|"
    code, said = execute(world, f"reg.exe add {rules} /v own /d {rule} /f")
    assert code == 0, said
    firewall.set_category(world.registry, firewall.PRIVATE)
    assert firewall.allows(world.registry, 5986)
    firewall.set_category(world.registry, firewall.PUBLIC)
    assert not firewall.allows(world.registry, 5986)


@pytest.mark.parametrize(
    ("words", "open_to_rule", "open_to_all"),
    [
        ("publicprofile firewallpolicy blockinboundalways,allowoutbound", False, False),
        ("allprofiles firewallpolicy blockinboundalways,allowoutbound", False, False),
        ("privateprofile firewallpolicy blockinboundalways,allowoutbound", True, False),
        ("currentprofile firewallpolicy blockinbound,allowoutbound", True, False),
        ("currentprofile firewallpolicy allowinbound,allowoutbound", True, True),
        ("publicprofile state off", True, True),
    ],
)
def test_netsh_advfirewall(world: World, words: str, open_to_rule: bool, open_to_all: bool) -> None:
    firewall.add_rule(world.registry, "winlab-winrm", "5986", "winlab")
    assert execute(world, f"netsh.exe advfirewall set {words}") == (0, "Ok.\r\n\r\n")
    assert firewall.allows(world.registry, 5986) == open_to_rule
    assert firewall.allows(world.registry, 80) == open_to_all


@pytest.mark.parametrize("words", ["", "publicprofile", "mostprofiles state off", "allprofiles state maybe"])
def test_netsh_refuses_unknown_commands(world: World, words: str) -> None:
    code, said = execute(world, f"netsh advfirewall set {words}")
    assert code == 1
    assert "not found" in said


def test_profiles_that_take_no_rules_stop_the_bootstrap(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, root = tmp_path / "e/winlab", tmp_path / "c"
    folder.mkdir(parents=True)
    for name in ("bootstrap.ps1", "winrm.pfx", *bootstrap.SSH_FILES):
        (folder / name).write_bytes(b"x")
    (folder / "node.json").write_text(json.dumps({"node": "W1", "mtu": 1400, "pfx_password": "p"}))
    (root / "Windows/System32/config").mkdir(parents=True)
    known = tmp_path / "known.json"
    known.write_text(json.dumps({"bootstrap_sha256": hashlib.sha256(b"x").hexdigest()}))
    monkeypatch.setattr(bootstrap, "KNOWN", known)
    monkeypatch.setattr(bootstrap, "pem", lambda *_: (b"", b""))
    monkeypatch.setattr(bootstrap, "run", lambda *_: None)
    monkeypatch.setattr(bootstrap, "restart", lambda _: None)
    told: list[str] = []
    monkeypatch.setattr(World, "log_off", lambda _: None)
    monkeypatch.setattr(World, "serial", lambda _, text: told.append(text))
    execute(world, "netsh advfirewall set publicprofile firewallpolicy blockinboundalways,allowoutbound")

    class Card:
        name = "eth0"

    monkeypatch.setattr(World, "adapters", lambda _: [Card()])
    with pytest.raises(bootstrap.RefusedError):
        bootstrap.play(folder, world, root)
    assert told[-2].startswith(
        "winlab: error=bootstrap: the firewall takes no inbound rules in the profile Public: WinRM and ssh"
    )
    assert not (root / "winlab/ready.txt").exists()
    execute(world, "netsh advfirewall set publicprofile firewallpolicy blockinbound,allowoutbound")
    bootstrap.play(folder, world, root)
    assert told[-1] == "winlab: phase=ready\r\n"
    assert firewall.category(world.registry) == firewall.PRIVATE
    assert [firewall.allows(world.registry, port) for port in (5986, 22, 5985)] == [True, True, False]


def test_a_refused_connection_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr(winrmd.ThreadingHTTPServer, "process_request", lambda _, request, __: served.append(request))
    server = object.__new__(winrmd.Server)
    server.unheard = deque(maxlen=2)
    server.allowed = lambda: False
    server.process_request("a", ("10.7.0.1", 4000))
    server.process_request("b", ("127.0.0.1", 4000))
    server.allowed = lambda: True
    server.process_request("c", ("10.7.0.1", 4000))
    assert served == ["b", "c"]
    assert list(server.unheard) == ["a"]


def test_a_virtual_switch_makes_the_network_a_new_one(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Machine:
        config = tmp_path
        world: World

        @property
        def node(self) -> node.Node:
            return node.Node(self.world, Manager(tmp_path / "services.json"), tmp_path)

        def tell(self, text: str) -> None:
            del text

        def c(self, path: str) -> Path:
            return tmp_path / Path(path).name

    machine = Machine()
    machine.world = world
    monkeypatch.setattr(node, "STATE", tmp_path)
    monkeypatch.setattr(node, "DROP", 0)
    firewall.set_category(world.registry, firewall.PRIVATE)
    network = {"name": "winlab"}
    assert clusterplayers.make_network(machine, network)  # type: ignore[arg-type]
    assert firewall.category(world.registry) == firewall.PUBLIC
    assert not clusterplayers.make_network(machine, network)  # type: ignore[arg-type]
