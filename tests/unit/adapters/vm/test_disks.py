"""Which volume a machine's disk is, and which volumes go: in libvirt's own mock of a hypervisor and its pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import libvirt
import plans
import pytest
import runs
import sites
from lxml import etree
from lxml.builder import E as X

from winlab.adapters import traces
from winlab.adapters.vm import devices, disks, domains, machine_xml
from winlab.adapters.vm.connection import Connection, connected
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.adapters.vm.volumes import MARKER, StoragePool
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain as domain_file
from winlab.events import Quiet
from winlab.steps import machines, payload

PLAN = plans.make(plans.KVM, "1-1-1", "workers.os=debian-13")
NODE = PLAN.node("node-1")
BASE = NODE.volume("base").name
DISK, SECOND, THIRD = "lab.node-1.disk.qcow2", "lab.node-1.disk-2.qcow2", "lab.node-1.disk-3.qcow2"
STORE = "lab.node-1.store.qcow2"
COPIED = "lab2.node-1.disk.qcow2"
USERS = "mine.qcow2"
SAVED = "lab@ready.node-1.disk.qcow2"
OTHER_UUID = "11111111-2222-4333-8444-555555555555"


class Pool(StoragePool):
    """The mock's pool. Nothing can be downloaded from it."""

    def __init__(self, conn: Connection) -> None:
        super().__init__(conn, "default-pool")
        self.asked = 0

    def add(self, name: str, base: str = "") -> None:
        xml = X.volume(X.name(name), X.capacity("1048576"), X.target(X.format(type="qcow2")))
        if base:
            xml.append(X.backingStore(X.path(str(self.folder / base)), X.format(type="qcow2")))
        self._create(name, xml)

    def backings(self) -> dict[str, Any]:
        self.asked += 1
        return super().backings()


class Host:
    """The hypervisor, with a base volume."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.pool = Pool(conn)
        self.pool.add(BASE)
        self.pool.add(BASE + MARKER)
        self.itself = sites.hypervisor(conn, self.pool)

    def define(self, *files: str, node: NodePlan | None = NODE) -> libvirt.virDomain:
        """A node's machine, or a user's own."""
        drives = [
            X.disk(X.source(file=str(self.pool.folder / file)), X.target(dev=f"sd{at}", bus="scsi"), type="file")
            for at, file in zip("abc", files, strict=False)
        ]
        root = X.domain(
            X.name("mine" if node is None else node.domain),
            X.uuid(OTHER_UUID if node is None else node.uuid),
            X.memory("1024"),
            X.metadata(*([] if node is None else [tags.element(PLAN, node)])),
            X.os(X.type("hvm")),
            X.devices(*drives),
            type="test",
        )
        return self.conn.defineXML(etree.tostring(root, encoding="unicode"))

    def current(self, planned: str = DISK) -> str:
        return disks.current(self.itself, NODE, planned)

    def destroy(self, lab: str) -> tuple[list[str], list[str]]:
        """Which volumes went, and which stayed."""
        gone: list[str] = []
        left: list[str] = []
        assert not traces.remove(
            lab,
            Hypervisors((self.itself,)),
            lambda: nullcontext(cast(Any, SimpleNamespace(remove=lambda _: False))),
            lambda kind, name: gone.append(name) if kind == "volume" else None,
            lambda _, name, why: left.append(f"{name}: {why}"),
        )
        return gone, left


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(libvirt.virDomain, "undefineFlags", lambda domain, _flags: domain.undefine())  # it has none
    with connected("test:///default") as conn:
        made = Host(conn)
        yield made
        for domain in conn.listAllDomains():
            if domain.name() != "test":
                if domain.isActive():
                    domain.destroy()
                domain.undefine()
        for name in made.pool.names():
            made.pool.delete(name)


def test_the_definition_decides(host: Host) -> None:
    host.pool.add(DISK, BASE)
    host.pool.add(SECOND, DISK)
    host.pool.add(THIRD, DISK)  # of a change that was interrupted
    host.pool.add(STORE, BASE)
    host.define(SECOND)
    assert host.current() == SECOND
    assert host.current(STORE) == STORE
    assert disks.live(host.itself, NODE) == NODE.volume("disk").model_copy(update={"name": SECOND})


def test_a_disk_that_is_lost_is_still_the_machine_s(host: Host) -> None:
    host.define(SECOND)
    assert host.current() == SECOND


def test_a_user_s_overlay_is_on_the_machine_s_disk(host: Host) -> None:
    """As 'virsh snapshot-create-as --disk-only' makes it."""
    host.pool.add(DISK, BASE)
    host.pool.add("lab.node-1.disk.before", DISK)
    host.define("lab.node-1.disk.before")
    assert host.current() == DISK


@pytest.mark.parametrize("defined", [False, True])
def test_without_it_in_a_definition_the_pool_decides(host: Host, defined: bool) -> None:
    """A new machine, one that a user undefined, or a store that is to be attached."""
    if defined:
        host.define()
    assert host.current() == DISK
    assert host.pool.asked == 0  # a plain create is quick in a full pool
    host.pool.add(DISK, BASE)
    assert host.current() == DISK
    host.pool.add(SAVED, DISK)
    assert host.current() == disks.next_free(host.pool, DISK) == SECOND
    host.pool.add(SECOND, BASE)
    assert host.current() == SECOND
    host.pool.add(USERS, SECOND)
    assert host.current() == disks.next_free(host.pool, DISK) == THIRD
    assert disks.frozen(host.pool) == {BASE, DISK, SECOND}


def test_generations_are_ordered_by_their_numbers(host: Host) -> None:
    tenth = "lab.node-1.disk-10.qcow2"
    for name in (SECOND, tenth, "lab.node-1.disk-clone.qcow2", "lab.node-1.disk-11.qcow2.bak"):
        host.pool.add(name)
    assert host.current() == tenth
    assert disks.next_free(host.pool, DISK) == "lab.node-1.disk-11.qcow2"
    assert disks.next_free(host.pool, STORE) == STORE


def test_a_disk_under_another_lab_s_stays_and_the_lab_is_made_again_beside_it(host: Host) -> None:
    host.pool.add(DISK, BASE)
    host.pool.add(SECOND, DISK)
    host.pool.add(COPIED, DISK)
    host.define(SECOND).create()
    assert host.destroy("lab") == ([SECOND], [f"{DISK}: needed by 'lab2'"])
    assert host.destroy("lab")[0] == []
    run = runs.run(PLAN, conn=host.conn, pool=host.pool)
    step = runs.titled(machines.steps(run, NODE), f"disk {NODE.name}")
    for _ in range(2):  # the second is of a create that was killed
        step.run(Quiet())
        assert host.pool.backing(SECOND) == host.pool.path(BASE)
    assert host.pool.backing(COPIED) == host.pool.path(DISK)
    assert not host.pool.exists(THIRD)
    host.define(SECOND)
    assert host.destroy("lab2") == ([DISK, COPIED], [])
    assert host.destroy("lab") == ([SECOND], [])


def test_a_machine_that_starts_over_keeps_what_is_frozen(host: Host) -> None:
    host.pool.add(DISK, BASE)
    host.pool.add(SAVED, DISK)
    host.pool.add(SECOND, DISK)
    host.define(SECOND).create()
    machines.start_over(runs.run(PLAN, conn=host.conn, pool=host.pool), NODE, Quiet())
    assert {name: base.name for name, base in host.pool.backings().items()} == {DISK: BASE, SAVED: DISK, SECOND: BASE}
    assert domains.is_running(host.conn, NODE)


def test_a_store_is_made_beside_a_frozen_one(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    attached: list[str] = []
    monkeypatch.setattr(devices, "attach", lambda *row: attached.append(row[-1].name))
    host.pool.add(STORE, BASE)
    host.pool.add("lab@ready.node-1.store.qcow2", STORE)
    host.pool.add(DISK, BASE)
    host.define(DISK)
    payload._add_store(runs.run(PLAN, conn=host.conn, pool=host.pool), NODE, BASE)
    assert attached == ["lab.node-1.store-2.qcow2"]
    assert host.pool.backing(attached[0]) == host.pool.path(BASE)
    assert host.pool.exists(STORE)


def test_a_machine_is_defined_with_its_own_names() -> None:
    seed = NODE.volume("seed").name
    xml = domain_file.domain_xml(PLAN, NODE, "secret", names={DISK: SECOND})
    assert {disk.file.rpartition("/")[2] for disk in machine_xml.read(xml).disks.values()} == {SECOND, seed, ""}
    assert xml.replace(SECOND, DISK) == domain_file.domain_xml(PLAN, NODE, "secret")


def test_a_user_s_overlay_keeps_its_base(host: Host) -> None:
    """N5: a user's copy must never break."""
    host.pool.add(DISK, BASE)
    host.pool.add(USERS, DISK)
    assert host.destroy("lab") == ([], [f"{DISK}: needed by '{USERS}'"])
    host.pool.delete(USERS)
    assert host.destroy("lab") == ([DISK], [])


def test_only_what_nothing_depends_on_is_collected(host: Host) -> None:
    """From an overlay downwards, through labs, and never what is a user's, a snapshot's or shared."""
    host.pool.add(DISK, BASE)
    host.pool.add(SECOND, DISK)
    host.pool.add(SAVED, SECOND)
    host.pool.add(COPIED, SECOND)
    assert disks.collect(host.itself, [SECOND, SAVED, BASE, USERS]) == []
    assert disks.collect(host.itself, [COPIED]) == [COPIED]
    host.pool.delete(SAVED)
    assert disks.collect(host.itself, [SECOND]) == [DISK, SECOND]
    assert host.pool.names() == [BASE, BASE + MARKER]
    host.pool.add(USERS, BASE)
    host.pool.add(DISK, USERS)
    assert disks.collect(host.itself, [DISK]) == [DISK]
    assert host.pool.exists(USERS)


@pytest.mark.parametrize("whose", [NODE, None])
def test_a_volume_that_a_machine_has_stays(host: Host, whose: NodePlan | None) -> None:
    """Now, or from its next start on."""
    host.pool.add(DISK, BASE)
    host.pool.add(SECOND, DISK)
    host.define(SECOND, node=whose).create()
    host.define(DISK, node=whose)
    assert domains.files(host.conn) >= {str(host.pool.path(name)) for name in (DISK, SECOND)}
    assert disks.collect(host.itself, [SECOND, DISK]) == []
    host.conn.lookupByUUIDString(OTHER_UUID if whose is None else whose.uuid).destroy()
    assert disks.collect(host.itself, [SECOND, DISK]) == [SECOND]
