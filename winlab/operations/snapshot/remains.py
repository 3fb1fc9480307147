"""What is left of snapshots in storage pools: its removal."""

from __future__ import annotations

from winlab.adapters.vm import disks
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan import volume_names
from winlab.snapshots import Id


def volumes(which: Id, hosts: Hypervisors) -> dict[str, list[str]]:
    """The names of a snapshot's volumes, by hypervisor."""
    return {host.name: host.pool.names(f"{which}.") for host in hosts}


def discard(which: Id, hosts: Hypervisors) -> list[str]:
    """Delete the volumes of a snapshot, and the frozen disks that nothing else needs; returns what was deleted.

    Nothing else is based on the volumes of a snapshot. Safe to repeat.
    """
    gone: list[str] = []
    for host in hosts:
        host.pool.refresh()
        named = host.pool.names(f"{which}.")
        below = [path.name for name in named if (path := host.pool.backing(name)) is not None]
        gone += [name for name in named if host.pool.delete(name)]
        imported = host.pool.names(f"{volume_names.imported(*which)}.")
        gone += disks.collect(host, {*below, *imported})
    return gone
