"""Write a snapshot to a file, and take one from a file: for another account, or another host.

The file stands by itself: each disk is one file, with what it was based on, and the shared CDs are in it. A file from
someone else is checked before anything of it is used (:mod:`winlab.operations.snapshot.adopted`,
:mod:`winlab.design.render.saved_domain`, :mod:`winlab.supply.disk_format`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from winlab import files, snapshots
from winlab.adapters.vm import disks, save_image
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import volume_names
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import saved_domain
from winlab.errors import HostError, TransferError, UsageError, WinlabError
from winlab.events import Listener, Progress
from winlab.operations.carry_out import one_step
from winlab.operations.snapshot import archive, compatible, contents, memory, remains, where
from winlab.operations.snapshot.adopted import adopt, moved
from winlab.operations.snapshot.archive import Archive
from winlab.site import Site
from winlab.snapshots import Id, Snapshot
from winlab.supply import disk_format, payload
from winlab.supply.artifacts import store
from winlab.supply.download import check_space

RECORD = "record.json"
WHOLE = "export.qcow2"  # the end of the name of a volume that has a disk in one file, while it is exported
LARGEST_RECORD = 16 << 20  # bytes
ZEROS = bytes(archive.BLOCK)


@dataclass(frozen=True)
class _Item:
    """Something of a snapshot that is in the file.

    :param name: in the file.
    :param volume: in the pool.
    :param kind: ``state``: what is restored with the memory, or the definition alone. ``image``: both in one.
    """

    name: str
    kind: Literal["state", "image", "memory", "disk", "own", "shared"]
    node: NodePlan
    volume: str


def _items(snapshot: Snapshot) -> list[_Item]:
    """All that is in the file besides the record, in order: what shows early that the rest is of no use comes first."""
    found: dict[str, _Item] = {}

    def add(name: str, kind: Literal["state", "image", "memory", "disk", "own", "shared"], volume: str) -> None:
        found.setdefault(name, _Item(name, kind, node, volume))

    for node in snapshot.plan.nodes:
        split = snapshot.nodes[node.name].split
        end = "xml" if split is None else "state" if split else "save"
        add(f"{node.name}.{end}", "image" if split is False else "state", snapshot.volume(node.name, end))
    for node in snapshot.plan.nodes:
        saved = snapshot.nodes[node.name]
        for drive in saved.drives.values():
            add(drive.what, drive.kind, drive.what if drive.kind == "shared" else drive.volume)
        if saved.split:
            add(f"{node.name}.memory", "memory", snapshot.volume(node.name, "memory"))
    return list(found.values())


def export(which: Id, path: Path, site: Site, tell: Listener) -> None:
    """Write a snapshot to a file, which only its owner can read: it has the lab's secrets.

    :raises NotFoundError: there is no such snapshot.
    :raises UsageError: there is already such a file, or it is a device, pipe or stream. Nothing was touched.
    :raises HostError: there is not enough space. Nothing is left of the file.
    """
    files.check_named(path, stream=False)
    snapshot = snapshots.read(which)
    with snapshots.exclusive(which):
        if path.exists():
            raise UsageError(f"'{path}' already exists.", cure="Remove it, or choose another name.")
        with site.storage() as hosts:
            work = partial(_export, snapshot, path, hosts)
            one_step(f"export {which}", work, tell, 60, lab=which.lab)


def _export(snapshot: Snapshot, path: Path, hosts: Hypervisors, progress: Progress) -> None:
    for host in hosts:
        host.pool.refresh()
        for name in host.pool.names(f"{snapshot.id}."):
            if name.endswith(f".{WHOLE}"):
                host.pool.delete(name)  # of an export that was killed: it takes space

    def record() -> Generator[bytes, None, None]:
        yield snapshot.model_dump_json(by_alias=True).encode()

    items = {
        item.name: partial(_content, item, snapshot, hosts.on(item.node).pool, progress) for item in _items(snapshot)
    }
    archive.write(path, {RECORD: record, **items})


def _content(item: _Item, snapshot: Snapshot, pool: StoragePool, progress: Progress) -> Generator[bytes, None, None]:
    """The content of a volume; that of an overlay with everything below it."""
    name, copy = item.volume, snapshot.volume(item.node.name, WHOLE)
    is_overlay = pool.backing(name) is not None
    if is_overlay:
        below = list(disks.chain(pool, name))
        contents.require_space(pool, sum(pool.allocation(one) for one in below), f"'{item.name}' in one file")
        progress.say(f"{item.name}: making one file of {len(below)}")
        pool.copy(copy, name)
        name = copy
    try:
        size, done = (pool.allocation if name.endswith(".qcow2") else pool.capacity)(name), 0
        with closing(pool.chunks(name)) as chunks:
            for chunk in chunks:
                done += len(chunk)
                progress.say(f"{item.name}: {size >> 20} MiB", min(1.0, done / max(1, size)))
                yield chunk
    finally:
        if is_overlay:
            with suppress(WinlabError):  # 'snapshot delete' removes it, and the next export
                pool.delete(copy)


def import_file(path: Path, renamed: str | None, site: Site, tell: Listener, *, on: str = HYPERVISOR) -> Snapshot:
    """Take a snapshot from a file; returns its record.

    :param renamed: what it is called, ``LAB@NAME`` or ``NAME``. None: as in the file.
    :param on: the hypervisor whose pool gets all of it.
    :raises NotFoundError: there is no such file.
    :raises UsageError: it is not an exported snapshot, or it has something that winlab does not write. Or the site has
        no hypervisor *on*, or tunnels to it don't take the packets of its machines.
    :raises TransferError: it is damaged.
    :raises ConflictError: there is such a snapshot, or its memory can't be restored here. Nothing was touched.
    :raises HostError: there is not enough space. Nothing was touched.
    """
    with archive.opened(path) as source:
        if RECORD not in source.rows:
            raise UsageError(f"'{path}' is not an exported snapshot.", why=f"It has no '{RECORD}'.")
        given = snapshots.parsed(source.read(RECORD, LARGEST_RECORD), str(path))
        snapshot = adopt(given, Id.parse(renamed, given.lab) if renamed else given.id, site.host_facts)
        which, items = snapshot.id, _items(snapshot)
        if {RECORD, *(item.name for item in items)} != source.rows.keys():
            raise UsageError(f"'{path}' does not have what its record lists.", cure="Export the snapshot again.")
        with site.storage() as hosts, snapshots.exclusive(which) as mark:
            host = where.require_chosen(on, snapshot.plan, {}, site, hosts)
            if on != HYPERVISOR:
                snapshot = moved(snapshot, host)
            compatible.require(snapshot, snapshot.plan, hosts)
            remains.require_free(which, hosts, mark, f"Choose another name: '--as {which.lab}@NAME'")
            with remains.making(which, hosts, mark):
                size = sum(source.rows[item.name].size for item in items)
                contents.require_space(host.pool, size, f"the snapshot '{which}'")
                done = _Import(source, snapshot, host)
                one_step(f"import {which}", partial(done.run, items), tell, 60, lab=which.lab)
    return done.snapshot


class _Import:
    """A snapshot on its way from a file into the pool."""

    def __init__(self, source: Archive, snapshot: Snapshot, host: Hypervisor) -> None:
        self.source = source
        self.snapshot = snapshot  # changes: shared CDs may get other names
        self.host = host

    def run(self, items: Iterable[_Item], progress: Progress) -> None:
        """Make the volumes, then the record."""
        for item in items:
            self._bring(item, self.host.pool, progress)
        progress.say("writing everything to the disk")
        self.host.pool.flush()
        snapshots.write(self.snapshot)

    def _bring(self, item: _Item, pool: StoragePool, progress: Progress) -> None:
        memory_size = item.node.memory_mib << 20
        if item.kind == "state":
            self._fill(item, pool, memory.LARGEST_STATE, progress)
            self._check_machine(item.node, pool)
        elif item.kind == "image":
            self._fill(item, pool, memory_size * 9 // 8 + memory.LARGEST_STATE, progress)
            self._check_machine(item.node, pool)
        elif item.kind == "memory":
            if self.source.rows[item.name].size != memory_size:
                raise UsageError(f"'{item.name}' does not have the {item.node.memory_mib} MiB of the machine's memory.")
            self._fill(item, pool, memory_size, progress)
        elif item.kind == "shared":
            self._bring_shared(item, progress)
        else:
            self._bring_disk(item, pool, progress)

    def _read(self, item: _Item, progress: Progress) -> Iterator[bytes]:
        size, done = self.source.rows[item.name].size, 0
        for chunk in self.source.chunks(item.name):
            done += len(chunk)
            progress.say(f"{item.name}: {size >> 20} MiB", done / max(1, size))
            yield chunk

    def _fill(self, item: _Item, pool: StoragePool, most: int, progress: Progress) -> None:
        """Fill a sparse volume: memory is mostly zeros."""
        size, at = self.source.rows[item.name].size, 0
        if size > most:
            raise UsageError(f"'{item.name}' has {size >> 20} MiB, which is more than its machine can have.")
        with pool.filling(item.volume, size) as put:
            for chunk in self._read(item, progress):
                if chunk != ZEROS[: len(chunk)]:
                    put(at, chunk)
                at += len(chunk)

    def _check_machine(self, node: NodePlan, pool: StoragePool) -> None:
        """Check what of a machine would reach libvirt, as it is in the pool now.

        :raises UsageError: it has something that no machine of winlab has.
        """
        saved = self.snapshot.nodes[node.name]
        formats = {
            target: "qcow2" if drive.what.endswith(".qcow2") else "raw" for target, drive in saved.drives.items()
        }
        try:
            xml = memory.definition(pool, self.snapshot, node.name)
        except UnicodeDecodeError as error:
            raise saved_domain.refused(node.name, f"Its XML is not UTF-8: {error}") from error
        saved_domain.check(xml, node, formats)
        if saved.split is not None:
            with closing(pool.chunks(self.snapshot.volume(node.name, "state" if saved.split else "save"))) as chunks:
                saved_domain.check_cookie(save_image.read_header(chunks).cookie, node.name)

    def _bring_disk(self, item: _Item, pool: StoragePool, progress: Progress) -> None:
        """Make a disk and the snapshot's overlay on it, or a volume of the snapshot alone."""
        with store.workspace() as work:
            local = self._extract(item, work, "qcow2" if item.volume.endswith(".qcow2") else "iso", progress)
            name = item.volume
            if item.kind == "disk":
                name = disks.next_free(pool, f"{volume_names.imported(*self.snapshot.id)}.{item.name}")
            pool.upload(name, local, lambda part: progress.say(f"uploading {item.name} into the pool", part))
        if item.kind == "disk":
            pool.create_overlay(item.volume, name)

    def _extract(self, item: _Item, work: Path, form: disk_format.Format, progress: Progress) -> Path:
        """A member as a local file, which is as its row says, and names no other file of this host."""
        local = work / "content"
        check_space(work, self.source.rows[item.name].size)
        try:
            with local.open("wb") as file:
                for chunk in self._read(item, progress):
                    file.write(chunk)
        except OSError as error:
            raise HostError(f"'{item.name}' can't be extracted.", why=str(error), causes=[error]) from error
        disk_format.check(local, form, f"{self.source.path}: {item.name}")
        return local

    def _bring_shared(self, item: _Item, progress: Progress) -> None:
        """Let the snapshot use a CD that labs share."""
        nodes = dict(self.snapshot.nodes)
        for node in self.snapshot.plan.nodes:
            drives = dict(nodes[node.name].drives)
            for target, drive in drives.items():
                if drive.kind == "shared" and drive.what == item.volume:
                    pool = self.host.pool
                    drives[target] = drive.model_copy(update={"what": self._shared(item, pool, progress)})
                    pool.create_disk(drive.volume, None, backing=drives[target].what)
            nodes[node.name] = nodes[node.name].model_copy(update={"drives": drives})
        self.snapshot = self.snapshot.model_copy(update={"nodes": nodes})

    def _shared(self, item: _Item, pool: StoragePool, progress: Progress) -> str:
        """The name of the CD in the pool: the pool's own if it has the same content, otherwise the file's, uploaded.

        The file's gets a name that follows from its content: under its own name, other labs would take it for theirs.
        """
        digest, name = self.source.rows[item.name].sha256, item.volume
        if pool.is_complete(name) and pool.uploaded_digest(name) == digest:
            return name
        kind = payload.PREFIX if name.startswith(payload.PREFIX) else "base-"
        name = f"{kind}imported-{digest[:32]}.iso"
        if not pool.is_complete(name):
            with store.workspace() as work:
                local = self._extract(item, work, "iso", progress)
                accept = partial(_require_digest, item.name, digest)
                pool.upload_base(name, local, lambda text, part: progress.say(f"{item.name}: {text}", part), accept)
        return name


def _require_digest(name: str, wanted: str, found: str) -> None:
    if found != wanted:
        raise TransferError(f"'{name}' changed while it was uploaded.", cure="Run the same command again.")
