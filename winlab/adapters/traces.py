"""What a lab has on its hypervisors and in the overlay, found by tags and names alone, and its removal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from winlab import account
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.vm import disks, domains
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan import volume_names
from winlab.errors import WinlabError

Overlay = Callable[[], AbstractContextManager[Northbound]]
Kind = Literal["domain", "network", "volume"]
USERS = "winlab did not make it"


def labs(
    hypervisors: Hypervisors, overlay: Overlay, without: Callable[[WinlabError], None] | None = None
) -> dict[str, list[domains.Machine]]:
    """Every lab with its machines, sorted; including labs of which only network rows or volumes are left.

    Volumes that something else depends on do not count: removing the lab leaves them.

    :param without: called if OVN does not answer; then the networks are left out. None: that is an error.
    :raises HostError: libvirt or OVN does not answer.
    """
    machines_by_lab: dict[str, list[domains.Machine]] = {}
    for machine in hypervisors.machines():
        machines_by_lab.setdefault(machine.tag.lab, []).append(machine)
    for one in hypervisors:
        rest = [name for name in one.pool.names() if volume_names.lab_of(name) not in machines_by_lab]
        for name in disks.unused(one, rest):
            machines_by_lab.setdefault(str(volume_names.lab_of(name)), [])
    try:
        with overlay() as northbound:
            for lab in northbound.labs():
                machines_by_lab.setdefault(lab, [])
    except WinlabError as error:
        if without is None:
            raise
        without(error)
    return dict(sorted(machines_by_lab.items()))


def others(lab: str, hypervisors: Hypervisors, overlay: Overlay) -> str:
    """The names of the users who made the lab; empty if this one did, or if what exists of it does not say.

    :raises HostError: libvirt does not answer.
    """
    if machines := hypervisors.machines(lab):
        return account.others([machine.tag.uid for machine in machines])
    try:
        with overlay() as northbound:
            return account.others([northbound.lab_owner(lab)])
    except WinlabError:  # removing the lab reports it
        return ""


def remove(
    lab: str,
    hypervisors: Hypervisors,
    overlay: Overlay,
    gone: Callable[[Kind, str], None],
    left: Callable[[Kind, str, str], None] = lambda *_: None,
) -> list[WinlabError]:
    """Remove the lab's machines, then its network, then its volumes. Safe to repeat.

    Base volumes stay, and volumes that something else depends on. A disk under those of the lab is removed with them if
    nothing depends on it any more, even if it was another lab's.

    :param gone: called for each thing that was removed.
    :param left: called for each thing that looks like the lab's, but stays, with the reason.
    :returns: why the network or the volumes could not be removed. Each is removed even if the other can't be.
    :raises WinlabError: a machine can't be removed; then its network and disks stay.
    """
    problems: list[WinlabError] = []
    for machine in hypervisors.machines(lab):
        if domains.remove(hypervisors.on(machine).conn, machine):
            gone("domain", machine.domain)
    for one in hypervisors:
        for copy in domains.copies(one.conn, lab):
            left("domain", copy, USERS)
    try:
        with overlay() as northbound:
            if northbound.remove(lab):
                gone("network", f"winlab-{lab}")
    except WinlabError as error:
        problems.append(error)
    for one in hypervisors:
        try:
            _remove_volumes(lab, one, gone, left)
        except WinlabError as error:
            problems.append(error)
    return problems


def _remove_volumes(
    lab: str, host: Hypervisor, gone: Callable[[Kind, str], None], left: Callable[[Kind, str, str], None]
) -> None:
    host.pool.refresh()
    for volume in disks.unused(host, host.pool.names(f"{lab}.")):
        if host.pool.delete(volume):
            gone("volume", volume)
    rest = host.pool.names(f"{lab}.")
    above = {base.name: name for name, base in host.pool.backings().items()} if rest else {}
    for volume in rest:
        top = volume
        while top in above and top.startswith(f"{lab}."):
            top = above[top]
        owner = top if top.startswith(f"{lab}.") else volume_names.owner(top)
        needed = "a machine has it" if top == volume else f"needed by '{owner}'"
        left("volume", volume, needed if volume_names.is_made(volume) else USERS)
