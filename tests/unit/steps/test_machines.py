"""Starting a machine: a paused one is resumed, unless its disk can't be written; a new one has no old log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import libvirt
import plans
import pytest
import runs
from lxml import etree
from writing import Writing

from winlab import account
from winlab.adapters.vm import domains, first_boot, resources
from winlab.adapters.vm.connection import Connection, connected
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.engine.step import Step
from winlab.errors import GuestError, HostError, NotFoundError
from winlab.events import Quiet
from winlab.operations import room
from winlab.steps import images, machines, paused


class Machine:
    """A node's machine in libvirt's own mock of a hypervisor, and the step that starts it."""

    def __init__(self, conn: Connection) -> None:
        self.plan: Plan = plans.make(plans.KVM, "1-0-1")
        self.node = self.plan.nodes[0]
        tag = etree.tostring(tags.element(self.plan, self.node), encoding="unicode")
        self.free = 0
        self.xml = (
            f"<domain type='test'><name>{self.node.domain}</name><uuid>{self.node.uuid}</uuid>"
            f"<memory>1024</memory><metadata>{tag}</metadata>"
            "<os><type>hvm</type></os></domain>"
        )
        self.domain = conn.defineXML(self.xml)
        self.domain.create()
        self.volumes = [f"lab.{self.node.name}.serial.log", f"lab.{self.node.name}.serial.log.0", "lab.x.serial.log"]
        pool = SimpleNamespace(
            free=lambda: self.free,
            folder="/pool",
            refresh=lambda: None,
            names=lambda prefix: [name for name in self.volumes if name.startswith(prefix)],
            delete=self._delete,
            download=lambda name, most=1 << 20: self.said.get(name, b"")[:most],
            create_disk=lambda *row: self.disks.append(row),
            exists=lambda name: self.has_disk and name == self.node.volume("disk").name,
            backing=lambda _: Path("/pool/base-older.qcow2"),
            is_complete=lambda name: name not in self.cut_short,
            flush=lambda: None,
        )
        self.has_disk = True
        self.cut_short: set[str | None] = set()
        self.said = {self.node.volume("disk").name: b"QFI\xfb\0\0\0\3"}
        self.disks: list[tuple[object, ...]] = []
        credentials = SimpleNamespace(nodes={self.node.name: SimpleNamespace(vnc_password="secret")})
        self.forgotten = 0
        kubeconfig = SimpleNamespace(unlink=self._forget)
        folder = SimpleNamespace(
            credentials=lambda: credentials, kubeconfig=kubeconfig, path=Path("/nonexistent"), lab="lab"
        )
        self.run = runs.run(self.plan, conn=conn, pool=pool, folder=folder)
        self.step: Step = runs.titled(machines.steps(self.run, self.node), f"start {self.node.name}")

    def _delete(self, name: str) -> None:
        if name in self.volumes:
            self.volumes.remove(name)

    def _forget(self, *, missing_ok: bool) -> None:
        assert missing_ok
        self.forgotten += 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    with connected("test:///default") as conn:
        made = Machine(conn)
        monkeypatch.setattr(machines.domain_file, "domain_xml", lambda *_: made.xml)
        yield made
        made.domain = conn.lookupByName(made.node.domain)
        made.domain.destroy()
        made.domain.undefine()


def test_a_paused_machine_is_resumed(machine: Machine) -> None:
    """winlab was killed while it read evidence off the disk, or a user paused the machine."""
    assert machine.step.done()
    machine.domain.suspend()
    assert not machine.step.done()
    machine.step.run(Quiet())
    assert machine.step.done()


def test_a_machine_whose_memory_libvirt_still_writes_is_resumed_after_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.domain.suspend()
    writing = Writing(monkeypatch, machine.node.domain)
    machine.step.run(writing)
    assert machine.step.done()
    assert len(writing.said) == 3


@pytest.mark.parametrize(("free", "resumed"), [(123456, False), (paused.ROOM, True)])
def test_a_machine_paused_by_a_full_disk_is_resumed_when_there_is_room(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, free: int, resumed: bool
) -> None:
    monkeypatch.setattr(domains, "disk_trouble", lambda *_: "full")
    machine.domain.suspend()
    machine.free = free
    if resumed:
        machine.step.run(Quiet())
    else:
        with pytest.raises(HostError, match="pool is full") as caught:
            machine.step.run(Quiet())
        assert "123456 bytes free" in caught.value.why
        assert "image prune" in caught.value.cure
    assert machine.step.done() is resumed


def test_a_machine_with_a_failed_disk_is_left_paused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "disk_trouble", lambda *_: "failed")
    machine.domain.suspend()
    with pytest.raises(HostError, match="can't be read or written") as caught:
        machine.step.run(Quiet())
    assert f"virsh resume {machine.node.domain}" in caught.value.cure
    assert not machine.step.done()


@pytest.mark.parametrize(
    ("reason", "errors", "trouble"),
    [
        (libvirt.VIR_DOMAIN_PAUSED_USER, {}, None),
        (libvirt.VIR_DOMAIN_PAUSED_IOERROR, {"sda": libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE}, "full"),
        (libvirt.VIR_DOMAIN_PAUSED_IOERROR, {"sda": libvirt.VIR_DOMAIN_DISK_ERROR_UNSPEC}, "failed"),
    ],
)
def test_the_reason_of_a_pause_is_reported(reason: int, errors: dict[str, int], trouble: str | None) -> None:
    domain = SimpleNamespace(state=lambda: [libvirt.VIR_DOMAIN_PAUSED, reason], diskErrors=lambda: errors)
    conn = cast(Any, SimpleNamespace(lookupByUUIDString=lambda _: domain))
    assert domains.disk_trouble(conn, plans.make(plans.KVM, "1-0-1").nodes[0]) == trouble


def test_a_paused_machine_has_its_memory_already(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    others = sum(node.memory_mib for node in machine.plan.nodes[1:])
    monkeypatch.setattr(resources, "free_memory_mib", lambda _: others)
    machine.domain.suspend()
    room.require_for(machine.plan, machine.run.hypervisors)
    machine.domain.destroy()
    with pytest.raises(HostError, match="memory"):
        room.require_for(machine.plan, machine.run.hypervisors)
    machine.domain.create()


def test_copies_made_together_need_memory_for_all_of_them(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.domain.destroy()
    whole = sum(node.memory_mib for node in machine.plan.nodes)
    half = {node.name: 0.5 for node in machine.plan.nodes}
    monkeypatch.setattr(resources, "free_memory_mib", lambda _: whole)
    room.require_for(machine.plan, machine.run.hypervisors, shares=half, copies=2)
    with pytest.raises(HostError, match=f"3 copies need {whole * 3 // 2} MiB of memory"):
        room.require_for(machine.plan, machine.run.hypervisors, shares=half, copies=3)
    machine.domain.create()


def test_a_machine_names_its_creator(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    (old,) = domains.machines(machine.domain.connect())
    assert old.tag.uid is None  # as of an earlier version
    machine.domain.destroy()
    machine.domain.undefine()
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    machine.step.run(Quiet())
    (new,) = domains.machines(machine.domain.connect())
    assert (new.tag.uid, new.tag.says_as(old.tag)) == (1234567, True)
    monkeypatch.setattr(account, "uid", lambda: 7654321)
    assert domains.carries(machine.domain.connect(), machine.node, old.tag)  # a plan decides nothing of it
    other = old.tag.model_copy(update={"plan": "0123456789abcdef"})
    domains.set_tag(machine.domain.connect(), machine.node, other)
    (changed,) = domains.machines(machine.domain.connect())
    assert (changed.tag.uid, changed.tag.plan) == (1234567, "0123456789abcdef")


def test_a_new_machine_ignores_the_log_of_an_earlier_one(machine: Machine) -> None:
    """destroy was cut short after the machine; its "winlab: error=" would end the new one's boot at once."""
    machine.domain.destroy()
    machine.step.run(Quiet())
    assert len(machine.volumes) == 3  # the same machine, started again
    assert machine.forgotten == 0
    machine.domain.destroy()
    machine.domain.undefine()
    machine.step.run(Quiet())
    assert machine.volumes == ["lab.x.serial.log"]
    assert machine.forgotten == 1  # a new first controller has another CA


def test_a_new_machine_has_the_disk_that_was_made_for_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned one is frozen: a copy of an earlier lab of this name is based on it."""
    asked: list[object] = []
    monkeypatch.setattr(machines.domain_file, "domain_xml", lambda *row: asked.append(row[-1]) or machine.xml)
    planned = machine.node.volume("disk").name
    machine.volumes.append(planned)
    made = {"lab2.node-1.disk.qcow2": Path("/pool") / planned}
    monkeypatch.setattr(machine.run.on(machine.node).pool, "backings", lambda: made, raising=False)
    machine.domain.destroy()
    machine.domain.undefine()
    machine.step.run(Quiet())
    assert asked == [{planned: "lab.controller-1.disk-2.qcow2"}]


def test_inputs_of_a_first_boot_are_on_disk_before_the_machine_is_made(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libvirt flushes no upload, and an empty seed is never recreated."""
    there: list[bool] = []
    conn = machine.domain.connect()
    pool: Any = machine.run.on(machine.node).pool
    monkeypatch.setattr(pool, "flush", lambda: there.append(domains.find(conn, machine.node) is not None))
    machine.domain.destroy()
    machine.domain.undefine()
    machine.step.run(Quiet())
    conn.lookupByName(machine.node.domain).destroy()
    machine.step.run(Quiet())
    assert there == [False]


@pytest.fixture
def booting(machine: Machine) -> Machine:
    """A machine that winlab has just made and started."""
    machine.domain.destroy()
    machine.domain.undefine()
    machine.step.run(Quiet())
    machine.domain = machine.domain.connect().lookupByName(machine.node.domain)
    machine.volumes += [f"lab.{machine.node.name}.serial.log", f"lab.{machine.node.name}.serial.log.0"]
    return machine


def test_a_first_boot_that_was_cut_off_starts_over(booting: Machine) -> None:
    """Files that cloud-init had just written were empty after a kill of QEMU, and it failed at each later boot."""
    booting.said["lab.controller-1.serial.log"] = b"winlab: phase=cloud-init\r\n"
    booting.domain.destroy()
    assert not booting.step.done()
    booting.step.run(Quiet())
    disk = booting.node.volume("disk")
    assert booting.disks == [(disk.name, disk.capacity_mib, "base-older.qcow2")]  # the plan's may not be in the pool
    assert booting.volumes == ["lab.x.serial.log"]  # the old log's phases are not the new machine's
    assert booting.step.done()


@pytest.mark.parametrize("lost", ["gone", "empty"])
def test_its_new_disk_is_made_when_winlab_was_killed_before(booting: Machine, lost: str) -> None:
    """Or the host lost its power just after the disk was made."""
    booting.has_disk = lost != "gone"
    booting.said[booting.node.volume("disk").name] = b"\0" * 8
    booting.domain.destroy()
    booting.step.run(Quiet())
    disk = booting.node.volume("disk")
    assert booting.disks == [(disk.name, disk.capacity_mib, disk.backing)]


def test_its_base_is_checked_before_anything_is_removed(booting: Machine) -> None:
    booting.said["lab.controller-1.serial.log"] = b"winlab: phase=cloud-init\r\n"
    booting.domain.destroy()
    disk = booting.node.volume("disk")
    booting.cut_short = {"base-older.qcow2", disk.backing}
    with pytest.raises(NotFoundError, match="can't get a new disk") as caught:
        booting.step.run(Quiet())
    assert "winlab destroy" in caught.value.cure
    assert f"lab.{booting.node.name}.serial.log" in booting.volumes
    booting.cut_short = {"base-older.qcow2"}
    booting.step.run(Quiet())
    assert booting.disks == [(disk.name, disk.capacity_mib, disk.backing)]


def test_an_image_is_uploaded_again_for_a_machine_that_starts_over(booting: Machine) -> None:
    image = next(step for step in images.steps(booting.run) if step.title.startswith("image"))
    booting.cut_short = {booting.node.volume("base").name}
    assert image.done()
    booting.said["lab.controller-1.serial.log"] = b"winlab: phase=cloud-init\r\n"
    booting.domain.destroy()
    assert not image.done()
    booting.step.run(Quiet())


def test_repair_creates_no_disk(booting: Machine) -> None:
    booting.said["lab.controller-1.serial.log"] = b"winlab: phase=cloud-init\r\n"
    booting.domain.destroy()
    run = replace(booting.run, keeps_disks=True)
    with pytest.raises(GuestError, match="first boot of 'controller-1' was cut off") as caught:
        runs.titled(machines.steps(run, booting.node), "start controller-1").run(Quiet())
    assert "create command again" in caught.value.cure
    assert booting.disks == []
    booting.step.run(Quiet())


@pytest.mark.parametrize("log", ["serial.log", "serial.log.0"])
@pytest.mark.parametrize("last", [b"winlab: phase=ready\r\n", b"winlab: error=it failed\r\n"])
def test_a_completed_first_boot_is_not_repeated(booting: Machine, log: str, last: bytes) -> None:
    """winlab was killed before it saw that, or a user continued manually; a log may have been rotated since then."""
    booting.said[f"lab.controller-1.{log}"] = b"winlab: phase=cloud-init\r\n" + last
    booting.domain.destroy()
    booting.step.run(Quiet())
    assert booting.step.done()
    assert booting.disks == []


def test_a_machine_that_has_booted_keeps_its_disk(booting: Machine) -> None:
    first_boot.unmark(booting.domain.connect(), booting.node)
    first_boot.unmark(booting.domain.connect(), booting.node)
    booting.domain.destroy()
    booting.step.run(Quiet())
    assert booting.disks == []
    assert tags.lab_of(booting.domain.XMLDesc(0)) == "lab"


@pytest.mark.parametrize("how", ["was_shut_down", "hasManagedSaveImage", "never started"])
def test_a_machine_that_stopped_cleanly_is_started_again(
    booting: Machine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its guest shut down; libvirt saved its memory, whose guest must find its own disk again; it never started."""
    booting.said["lab.controller-1.serial.log"] = b"" if how == "never started" else b"winlab: phase=cloud-init\r\n"
    booting.domain.destroy()
    if how == "was_shut_down":
        monkeypatch.setattr(domains, "was_shut_down", lambda *_: True)
    elif how == "hasManagedSaveImage":
        monkeypatch.setattr(libvirt.virDomain, how, lambda _, flags=0: 1)
    booting.step.run(Quiet())
    assert booting.step.done()
    assert booting.disks == []


def test_a_machine_of_an_earlier_version_keeps_its_disk(machine: Machine) -> None:
    assert not first_boot.is_marked(machine.domain.connect(), machine.node)
    machine.domain.destroy()
    machine.step.run(Quiet())
    assert machine.disks == []


def test_a_machine_that_is_paused_in_its_first_boot_resumes(booting: Machine) -> None:
    assert first_boot.is_marked(booting.domain.connect(), booting.node)
    booting.domain.suspend()
    booting.step.run(Quiet())
    assert booting.step.done()
    assert booting.disks == []
