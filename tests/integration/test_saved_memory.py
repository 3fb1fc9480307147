"""A machine's memory, saved and given to a copy: real libvirt, QEMU and firmware, winlab's hook; no guest system."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lxml import etree

from winlab.adapters.vm import display, domains, power, snapshots
from winlab.adapters.vm.connection import Connection, connected
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import addresses
from winlab.design.render import copied_domain
from winlab.errors import WinlabError
from winlab.events import Quiet
from winlab.operations.snapshot import memory
from winlab.snapshots import Id, SavedNode

ORIGIN, COPY = "it-memory", "it-memory-copy"
SNAPSHOT = Id(ORIGIN, "s")
MIB = 256
BASE = f"{ORIGIN}.base.qcow2"
NODE = "node-1"
DISK, OVERLAY, COPIED = f"{ORIGIN}.{NODE}.disk.qcow2", f"{ORIGIN}.{NODE}.disk-2.qcow2", f"{COPY}.{NODE}.disk.qcow2"
PAGE = 4096


def machine(lab: str) -> Any:
    name, uuid = addresses.domain(lab, NODE), addresses.make_uuid(lab, NODE)
    return SimpleNamespace(name=NODE, domain=name, uuid=uuid, memory_mib=MIB)


def definition(disk: Path, balloon: str = "none") -> str:
    one = machine(ORIGIN)
    return f"""
<domain type='qemu'>
  <name>{one.domain}</name><uuid>{one.uuid}</uuid>
  <metadata><t:test xmlns:t='urn:winlab-test'/></metadata>
  <memory unit='MiB'>{MIB}</memory><vcpu>1</vcpu>
  <os firmware='efi'><type arch='x86_64' machine='q35'>hvm</type>
    <firmware><feature enabled='no' name='secure-boot'/><feature enabled='no' name='enrolled-keys'/></firmware></os>
  <features><acpi/><apic/></features>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='{disk}'/>
      <target dev='vda' bus='virtio'/></disk>
    <serial type='pty'/><video><model type='vga'/></video><memballoon model='{balloon}'/>
  </devices>
</domain>"""


class Saved:
    """A machine in its firmware, and a snapshot of it."""

    def __init__(self, conn: Connection) -> None:
        self.conn, self.pool = conn, StoragePool(conn)
        self.host = cast(Any, SimpleNamespace(conn=conn, pool=self.pool))
        self.origin, self.copy = machine(ORIGIN), machine(COPY)
        self.pool.create_disk(BASE, 1024)
        self.pool.create_overlay(DISK, BASE)
        conn.defineXML(definition(self.pool.path(DISK)))
        power.start(conn, self.origin)
        while not display.look(conn, self.origin):  # the firmware shows its picture: it has written its memory
            time.sleep(0.5)
        power.suspend(conn, self.origin)
        image = self.pool.folder / SNAPSHOT.volume(NODE, "save")
        snapshots.save(conn, self.origin, image, {"vda": self.pool.folder / OVERLAY})
        power.resume(conn, self.origin)
        self.pool.refresh()
        stored = memory.store(self.pool, SNAPSHOT, self.origin, Quiet())
        assert stored.split
        assert stored.sample is not None
        saved = SavedNode(drives={}, memory_mib=MIB, split=True, sample=stored.sample)
        self.snapshot = cast(Any, SimpleNamespace(id=SNAPSHOT, nodes={NODE: saved}, volume=SNAPSHOT.volume))

    def define_copy(self, **changes: str) -> None:
        self.pool.create_overlay(COPIED, DISK)
        root = etree.fromstring(memory.definition(self.pool, self.snapshot, NODE).encode())
        root.find("name").text, root.find("uuid").text = self.copy.domain, self.copy.uuid
        root.find("os/nvram").text = None
        for path, model in changes.items():
            root.find(f"devices/{path}").set("model", model)
        files = {"vda": self.pool.path(COPIED)}
        snapshots.define(
            self.conn, self.copy, copied_domain.redirected(etree.tostring(root, encoding="unicode"), files)
        )

    @property
    def digest(self) -> str:
        """Of the file that copies share."""
        digest = hashlib.sha256()
        for chunk in self.pool.chunks(SNAPSHOT.volume(NODE, "memory")):
            digest.update(chunk)
        return digest.hexdigest()

    def remove(self) -> None:
        for one in (self.origin, self.copy):
            domains.remove(self.conn, one)
        self.pool.refresh()
        for name in [name for name in self.pool.names("it-") if name.startswith((ORIGIN, COPY))]:
            self.pool.delete(name)


@pytest.fixture(scope="module")
def saved(host: None) -> Iterator[Saved]:
    with connected() as conn:
        made = Saved(conn)
        try:
            yield made
        finally:
            made.remove()


@pytest.mark.parametrize("shared", [True, False])
def test_a_copy_continues_with_the_memory_and_the_original_stays(saved: Saved, shared: bool) -> None:
    before = saved.digest
    saved.define_copy()
    memory.restore(saved.host, saved.snapshot, COPY, saved.copy, shared=shared)
    domain = domains.get(saved.conn, saved.copy)
    assert domains.state(saved.conn, saved.copy) == "running"
    assert domain.isPersistent()
    assert "memoryBacking" not in snapshots.definition(saved.conn, saved.copy), "a later start has its own memory"
    power.suspend(saved.conn, saved.copy)
    equal = [
        snapshots.memory_at(saved.conn, saved.copy, at, PAGE)
        == saved.pool.download(SNAPSHOT.volume(NODE, "memory"), at, PAGE)
        for at in range(1 << 20, (MIB - 32) << 20, 4 << 20)
    ]
    assert sum(equal) > len(equal) * 0.8, "the firmware has changed some of its pages"
    assert saved.digest == before
    assert domains.is_running(saved.conn, saved.origin)
    power.cut_power(saved.conn, saved.copy)
    power.start(saved.conn, saved.copy)
    assert not saved.pool.exists(f"{COPY}.{NODE}.restore")
    domains.remove(saved.conn, saved.copy)


def test_a_machine_with_a_balloon_is_refused_by_the_hook(saved: Saved) -> None:
    saved.define_copy(memballoon="virtio")
    with pytest.raises(WinlabError, match="can't be restored") as caught:
        memory.restore(saved.host, saved.snapshot, COPY, saved.copy, shared=True)
    assert "balloon" in caught.value.why
    assert domains.state(saved.conn, saved.copy) == "off"


def test_disks_continue_in_overlays(saved: Saved) -> None:
    """Now and at the next start; the frozen disk is not written to any more."""
    files = copied_domain.drives(snapshots.definition(saved.conn, saved.origin))
    assert Path(files["vda"]).name == OVERLAY
    assert saved.pool.backing(OVERLAY) == saved.pool.path(DISK)


def test_a_disk_takes_over_what_is_in_the_frozen_ones_below_it(saved: Saved) -> None:
    seen: list[float] = []
    snapshots.flatten(saved.conn, saved.origin, "vda", saved.pool.path(BASE), seen.append)
    saved.pool.refresh()
    assert saved.pool.backing(OVERLAY) == saved.pool.path(BASE)
    assert domains.is_running(saved.conn, saved.origin)
    assert saved.pool.exists(DISK), "copies are based on it"
