"""Paused machines that can't be resumed yet: a disk could not be written, or libvirt still writes their memory."""

from __future__ import annotations

from typing import Protocol

from winlab import stopping
from winlab.adapters.vm import domains
from winlab.adapters.vm import snapshots as machines
from winlab.adapters.vm.domains import Named
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.errors import HostError
from winlab.events import Progress

POLL = 0.5  # seconds
ROOM = 1 << 30  # bytes that must be free: with less, a resumed machine would be paused again at once


class Machine(Named, Protocol):
    """A node with a domain."""

    @property
    def name(self) -> str:
        """The node's name."""


def require_writable_disk(host: Hypervisor, node: Machine) -> None:
    """Check that a machine was not paused by a disk that can't be written; resuming it would then not help.

    :raises HostError: it was. A full pool no longer matters once it has room.
    """
    trouble = domains.disk_trouble(host.conn, node)
    if trouble is None:
        return
    domain = domains.name_of(host.conn, node)
    evidence = f"/var/log/libvirt/qemu/{domain}.log"
    free = host.pool.free()
    if trouble != "full":
        raise HostError(
            f"'{node.name}' is paused, because its disk can't be read or written.",
            why="QEMU reports an input/output error of a file in the storage pool.",
            cure=f"Check the disk under '{host.pool.folder}'. Then run 'virsh resume {domain}' and the same command.",
            evidence=evidence,
        )
    if free < ROOM:
        raise HostError(
            f"'{node.name}' is paused, because the storage pool is full.",
            why=f"'{host.pool.folder}' has {free} bytes free, and the machine needs more for its disk.",
            cure="Free some space: 'winlab image prune', 'winlab snapshot delete', or 'winlab destroy'. "
            f"Once {ROOM >> 30} GiB is free, the same command resumes the machine.",
            evidence=evidence,
        )


def await_memory(host: Hypervisor, node: Machine, progress: Progress) -> None:
    """Wait until libvirt is not writing a machine's memory, as it still does after a save that was killed.

    :raises Stopped: the work was asked to stop.
    """
    while (job := machines.job(host.conn, node)) is not None:
        done, total = job
        text = (
            f"waiting for libvirt, which is still writing the memory of {node.name}: {done >> 20} of {total >> 20} MiB"
        )
        progress.say(text, done / max(1, total))
        stopping.sleep(POLL)
