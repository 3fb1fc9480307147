"""A copy's own credentials: each node takes them whatever breaks in between, and refuses those of its origin."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import plans
import pytest
import runs
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from winlab.adapters.guests.base import Guest
from winlab.adapters.vm import domains
from winlab.design.contract import on_both
from winlab.design.contract.call import Call
from winlab.design.plan import credentials, tags
from winlab.design.plan.model import Plan
from winlab.design.plan.tags import Tag
from winlab.errors import GuestError, UnreachableError
from winlab.events import Quiet
from winlab.lab_folder import LabFolder
from winlab.steps import fresh
from winlab.steps.states import ADMINISTRATOR, READY, RENEWED


@dataclass
class Node:
    """What a node takes, and what it shows. A script sets it in the order of ``logins``."""

    name: str
    keys: set[str]
    host_key: str
    password: str
    issuer: bytes | None  # the CA's key that its certificate is from
    ssh: bool = True  # whether a Windows node has sshd
    script: bool = True  # whether its CD has the script
    stops: dict[int, Callable[[], Exception]] = field(default_factory=dict)  # call -> what happens
    after: int = 0  # how many changes a call that is stopped has made
    keeps: bool = False  # whether the former key stays
    calls: list[on_both.Logins] = field(default_factory=list)

    def take(self, call: on_both.Logins) -> None:
        self.calls.append(call)
        stop = self.stops.pop(len(self.calls), None)
        changes: list[Callable[[], None]] = [
            lambda: self.keys.add(call.ssh_key),
            lambda: setattr(self, "host_key", call.host_key_public),
        ]
        if call.pfx:
            changes += [
                lambda: setattr(self, "issuer", issuer(call)),
                lambda: setattr(self, "password", call.password),
            ]
        for change in changes[: self.after if stop else len(changes)]:
            change()
        if stop:
            raise stop()
        if call.former and not self.keeps:
            self.keys.discard(call.former)


def issuer(call: on_both.Logins) -> bytes | None:
    _, certificate, _ = pkcs12.load_key_and_certificates(base64.b64decode(call.pfx), call.pfx_password.encode())
    assert certificate is not None
    return issuer_of(certificate)


def issuer_of(certificate: x509.Certificate) -> bytes | None:
    return certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier


def key_of(authority: x509.Certificate) -> bytes:
    return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest


class Lab:
    """Nodes that accept the logins that their state allows."""

    def __init__(self, plan: Plan, held: credentials.Credentials) -> None:
        self.nodes = {}
        for node in plan.nodes:
            row = held.nodes[node.name]
            certificate = x509.load_pem_x509_certificate(row.certificate.encode()) if row.certificate else None
            own = issuer_of(certificate) if certificate else None
            keys = {held.ssh_key_public}
            made = Node(node.name, keys, row.host_key_public, held.administrator_password, own)
            self.nodes[node.name] = made

    def connect(self, tag: Tag, folder: LabFolder, via: str | None = None, timeout: float = 30) -> Guest:
        node, given = self.nodes[tag.node], folder.credentials()
        if via == "ssh":
            if not node.ssh:
                raise UnreachableError("no sshd")
            if node.host_key not in folder.known_hosts.read_text():
                raise GuestError("another host key")
            if given.ssh_key_public not in node.keys:
                raise GuestError("refuses the key")
        else:
            trusted = x509.load_pem_x509_certificates(folder.ca.read_bytes())
            if node.issuer not in [key_of(one) for one in trusted]:
                raise GuestError("another CA")
            if given.administrator_password != node.password:
                raise GuestError("refuses the password")
        return Login(node)


class Login:
    def __init__(self, node: Node) -> None:
        self.node = node

    def execute(self, *_: Any, **__: Any) -> int:
        raise AssertionError("only scripts run here")

    def close(self) -> None:
        pass


class Scripts:
    """Stands for NodeScripts: one login, made when it is needed."""

    def __init__(self, tag: Tag, _folder: LabFolder, scale: float, log_in: Callable[[], Login]) -> None:
        self.tag, self.scale, self._log_in = tag, scale, log_in
        self.tell: object = None
        self._login: Login | None = None

    def __enter__(self) -> Scripts:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        self._login = None

    def _node(self) -> Node:
        self._login = self._login or self._log_in()
        return self._login.node

    def sees(self, file: str, *, there: bool) -> bool:
        assert there
        return self._node().script or self.tag.os == "linux" or file != "scripts/logins.ps1"

    def execute(self, command: Sequence[str]) -> str:
        assert command == ["hostname"]
        return self._node().name

    def run(self, call: Call[Any], _heard: object = None) -> object:
        assert isinstance(call, on_both.Logins)
        call.settings(self.tag.os)
        self._node().take(call)
        return on_both.Changed(changed=True)


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plan = plans.make(plans.TCG, "1-1-1")
        self.run = runs.run(self.plan)
        self.held = self.run.folder.ensure_credentials(self.plan)
        self.lab = Lab(self.plan, self.held)
        monkeypatch.setattr(fresh, "connect", self.lab.connect)
        monkeypatch.setattr(fresh, "NodeScripts", Scripts)
        monkeypatch.setattr(domains, "is_running", lambda *_: True)
        fresh.prepare(self.run)

    def renew(self, *names: str) -> None:
        ready = [READY(self.plan.lab, "controller-1")]
        for step in fresh.steps(self.run, ready, cluster=False):
            if not names or step.reaches.node in names:
                step.run(Quiet())


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    runs.clock(monkeypatch)
    return World(monkeypatch)


def lost() -> Exception:
    return UnreachableError("the connection was lost")


def refused() -> Exception:
    """The connection was made again, after the password had changed."""
    return GuestError("refuses the password")


def test_every_node_takes_the_new_ones_and_refuses_the_old_ones(world: World) -> None:
    world.renew()
    fresh.take(world.run)
    made = world.run.folder.credentials()
    assert made.administrator_password != world.held.administrator_password
    controller, worker = world.lab.nodes["controller-1"], world.lab.nodes["node-1"]
    assert controller.keys == worker.keys == {made.ssh_key_public}
    assert worker.password == made.administrator_password
    assert [node.host_key for node in (controller, worker)] == [
        made.nodes[name].host_key_public for name in ("controller-1", "node-1")
    ]
    assert [one.former for one in worker.calls] == [None, world.held.ssh_key_public]
    for node in world.plan.nodes:
        tag = tags.of(world.plan, node)
        world.lab.connect(tag, world.run.folder, tag.system.login).close()


def test_nothing_is_left_beside_the_lab_s_credentials(world: World) -> None:
    world.renew()
    assert (world.run.folder.path / "fresh").is_dir()
    fresh.take(world.run)
    names = {path.name for path in world.run.folder.path.iterdir()}
    assert names == {"credentials.json", "id_ed25519", "known_hosts", "ca.pem"}
    assert world.run.folder.has_credentials_for(world.plan)
    assert len(x509.load_pem_x509_certificates(world.run.folder.ca.read_bytes())) == 1


@pytest.mark.parametrize("name", ["controller-1", "node-1"])
@pytest.mark.parametrize("stop", [lost, refused])
@pytest.mark.parametrize("after", range(5))
def test_a_connection_that_is_lost_in_the_middle(
    world: World, name: str, stop: Callable[[], Exception], after: int
) -> None:
    node = world.lab.nodes[name]
    last = 2 if name == "controller-1" else 4
    node.stops, node.after = {1: stop}, min(after, last)
    if stop is refused and node.after < last:  # the script failed: the old ones still log in
        with pytest.raises(GuestError, match="refuses the password"):
            world.renew(name)
        return
    world.renew(name)
    assert node.keys == {world.run.folder.within("fresh").credentials().ssh_key_public}


@pytest.mark.parametrize("name", ["controller-1", "node-1"])
def test_a_connection_that_is_lost_while_the_old_key_goes(world: World, name: str) -> None:
    world.lab.nodes[name].stops = {2: lost}
    world.renew(name)
    assert world.held.ssh_key_public not in world.lab.nodes[name].keys


@pytest.mark.parametrize("name", ["controller-1", "node-1"])
def test_a_node_that_keeps_the_old_key_is_reported(world: World, name: str) -> None:
    world.lab.nodes[name].keeps = True
    with pytest.raises(GuestError, match="does not refuse the credentials") as caught:
        world.renew(name)
    assert "They still log in by ssh" in caught.value.why


def test_a_windows_node_without_ssh(world: World) -> None:
    world.lab.nodes["node-1"].ssh = False
    world.renew("node-1")


def test_the_cd_of_an_earlier_winlab_is_noticed_before_the_node_is_touched(world: World) -> None:
    world.lab.nodes["node-1"].script = False
    with pytest.raises(GuestError, match="no script for new credentials"):
        world.renew("node-1")
    assert world.lab.nodes["node-1"].calls == []


def test_the_administrator_comes_before_the_nodes(world: World) -> None:
    lab = world.plan.lab
    ready = [READY(lab, "controller-1")]
    first, *others = fresh.steps(world.run, ready, cluster=True)
    assert (first.reaches, first.needs) == (ADMINISTRATOR(lab), frozenset(ready))
    assert [one.reaches for one in others] == [RENEWED(lab, node.name) for node in world.plan.nodes]
    assert {one.needs for one in others} == {frozenset([ADMINISTRATOR(lab)])}
    for one in fresh.steps(world.run, ready, cluster=False):
        assert one.needs == frozenset(ready)


def test_screens_have_the_new_password_before_the_machines_run(world: World) -> None:
    now, made = world.run.folder.credentials(), world.run.folder.within("fresh").credentials()
    assert now.administrator_password == world.held.administrator_password
    for name, row in now.nodes.items():
        assert row.vnc_password == made.nodes[name].vnc_password != world.held.nodes[name].vnc_password


def test_another_try_has_credentials_of_its_own(world: World) -> None:
    before = world.run.folder.within("fresh").credentials()
    world.run.folder.keep_credentials(world.plan, world.held)  # as the snapshot has them
    fresh.prepare(world.run)
    assert world.run.folder.within("fresh").credentials().ssh_key != before.ssh_key
    world.renew()
