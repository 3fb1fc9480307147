"""Delete a snapshot. Labs that were made from it keep the disks that they are based on."""

from __future__ import annotations

from winlab import snapshots
from winlab.errors import NotFoundError
from winlab.events import Listener
from winlab.operations.carry_out import one_step
from winlab.operations.snapshot import remains
from winlab.site import Site
from winlab.snapshots import Id


def delete(which: Id, site: Site, tell: Listener) -> list[str]:
    """Delete a snapshot, or what an interrupted save left; returns what was deleted. Safe to repeat.

    :raises NotFoundError: there is no such snapshot.
    :raises ConflictError: another winlab is exporting or importing it.
    """
    with site.storage() as hosts, snapshots.transferring(which):
        there = snapshots.forget(which)
        gone = one_step(f"delete {which}", lambda _: remains.discard(which, hosts), tell, 1, lab=which.lab)
    if not there and not gone:
        raise NotFoundError(f"There is no snapshot '{which}'.", cure="'winlab snapshot list' shows all.")
    return gone
