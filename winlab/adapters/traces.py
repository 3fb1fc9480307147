"""What a lab has on the hypervisor and in the overlay, found by tags and names alone, and its removal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from winlab import account
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import StoragePool
from winlab.errors import WinlabError

Overlay = Callable[[], AbstractContextManager[Northbound]]
Kind = Literal["domain", "network", "volume"]


def labs(conn: Connection, overlay: Overlay, pool: StoragePool) -> dict[str, list[domains.Machine]]:
    """Every lab with its machines, sorted; including labs of which only network rows or volumes are left.

    :raises HostError: libvirt or OVN does not answer.
    """
    machines_by_lab: dict[str, list[domains.Machine]] = {lab: [] for lab in pool.labs()}
    for machine in domains.machines(conn):
        machines_by_lab.setdefault(machine.tag.lab, []).append(machine)
    with overlay() as northbound:
        for lab in northbound.labs():
            machines_by_lab.setdefault(lab, [])
    return dict(sorted(machines_by_lab.items()))


def others(lab: str, conn: Connection, overlay: Overlay) -> str:
    """The names of the users who made the lab; empty if this one did, or what there is of it does not say.

    :raises HostError: libvirt does not answer.
    """
    if machines := domains.machines(conn, lab):
        return account.others([machine.tag.uid for machine in machines])
    try:
        with overlay() as northbound:
            return account.others([northbound.lab_owner(lab)])
    except WinlabError:  # whoever removes the lab learns of it
        return ""


def remove(
    lab: str, conn: Connection, overlay: Overlay, pool: Callable[[], StoragePool], gone: Callable[[Kind, str], None]
) -> list[WinlabError]:
    """Remove the lab's machines, then its network, then its volumes. Base volumes stay. Safe to repeat.

    :param gone: called for each thing that was removed.
    :returns: why the network or the volumes could not be removed. The one is removed even if the other can't be.
    :raises WinlabError: a machine can't be removed; then its network and disks stay.
    """
    problems: list[WinlabError] = []
    for machine in domains.machines(conn, lab):
        if domains.remove(conn, machine.domain):
            gone("domain", machine.domain)
    try:
        with overlay() as northbound:
            if northbound.remove(lab):
                gone("network", f"winlab-{lab}")
    except WinlabError as error:
        problems.append(error)
    try:
        volumes = pool()
        volumes.refresh()
        for volume in volumes.names(f"{lab}."):
            if volumes.delete(volume):
                gone("volume", volume)
    except WinlabError as error:
        problems.append(error)
    return problems
