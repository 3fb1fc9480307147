"""Volumes of a snapshot brought to another hypervisor, for a copy that is made there.

They go through this host: libvirt streams them from one pool, and to the other. A disk arrives as one file, with all
that it was based on, so the other pool needs nothing of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress

from winlab.adapters.vm import disks
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.errors import TransferError, WinlabError
from winlab.events import Progress
from winlab.operations.snapshot import contents
from winlab.snapshots import Drive
from winlab.supply.artifacts import store

WHOLE = "export.qcow2"  # the end of the name of a volume that has a disk in one file, while it is brought


def volume(drive: Drive, node: str, source: Hypervisor, target: Hypervisor, progress: Progress) -> str:
    """Make the volume of a copy for a drive of a snapshot that is on another hypervisor; returns its name.

    :param node: the copy's, as volumes are named: ``LAB.NODE``.
    :raises HostError: a pool has not enough space.
    :raises WinlabError: it can't be read or written.
    """
    name = f"{node.partition('.')[0]}.{drive.what}"
    if drive.kind == "shared":
        _share(drive.what, source, target, progress)
        return drive.what
    if drive.kind == "own":
        _stream(drive.volume, source, name, target, progress)
        return name
    base = disks.next_free(target.pool, name)
    _bring_disk(drive.volume, f"{node}.{WHOLE}", source, base, target, progress)
    overlay = disks.next_free(target.pool, name)  # as other copies have: a disk without a base counts as damaged
    target.pool.create_overlay(overlay, base)
    return overlay


def _bring_disk(origin: str, whole: str, source: Hypervisor, name: str, target: Hypervisor, progress: Progress) -> None:
    """Copy a disk with all that it is based on.

    :param whole: the volume that has it in one file meanwhile.
    """
    size = sum(source.pool.allocation(one) for one in disks.chain(source.pool, origin))
    for host in (source, target):
        contents.require_space(host.pool, size, f"'{name}' in one file on '{host.name}'")
    progress.say(f"{origin}: making one file")
    source.pool.copy(whole, origin)
    try:
        _stream(whole, source, name, target, progress)
    finally:
        with suppress(WinlabError):  # the next command of the copy removes it
            source.pool.delete(whole)


def _stream(origin: str, source: Hypervisor, name: str, target: Hypervisor, progress: Progress) -> None:
    """Copy a volume from pool to pool; blocks of zeros take no space there."""
    pool, at = source.pool, 0
    size = pool.capacity(origin) if not origin.endswith(".qcow2") else pool.allocation(origin)
    with target.pool.filling(name, size) as put, closing(pool.chunks(origin)) as chunks:
        for chunk in chunks:
            if any(chunk):
                put(at, chunk)
            at += len(chunk)
            progress.say(f"{name} from '{source.name}': {size >> 20} MiB", min(1.0, at / max(1, size)))
    target.pool.refresh()  # libvirt reads the format from the content


def _share(name: str, source: Hypervisor, target: Hypervisor, progress: Progress) -> None:
    """Give another pool a CD that labs share, unless it has it.

    :raises WinlabError: it can't be read or written, or has changed since it was uploaded.
    """
    if target.pool.is_complete(name):
        return
    wanted = source.pool.uploaded_digest(name)

    def accept(found: str) -> None:
        if wanted and found != wanted:
            raise TransferError(f"'{name}' changed on the way to '{target.name}'.", cure="Run the same command again.")

    def said(text: str) -> Callable[[float | None], None]:
        return lambda part: progress.say(f"{name}: {text}", part)

    with store.workspace() as work:
        local = work / "content"
        source.pool.download_to(name, local, said(f"from '{source.name}'"))
        target.pool.upload_base(name, local, lambda text, part: said(text)(part), accept)
