"""The front door to a lab's snapshots: saved, put back, copied.

As in :mod:`winlab.lab`, methods raise a :class:`winlab.errors.WinlabError`, a *listener* receives events, and *stop*
stops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab import snapshots, stopping
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.spec.model import Spec
from winlab.events import Listener, ignore
from winlab.operations import owner
from winlab.operations.snapshot import copying, listing, required, save, transfer, where
from winlab.operations.snapshot import delete as deletion
from winlab.operations.snapshot.copying import Copied
from winlab.operations.snapshot.listing import Listed
from winlab.site import Site, at_site
from winlab.snapshots import Id, Snapshot
from winlab.steps.sources import ANYWHERE, Origin
from winlab.stopping import Stop

__all__ = ["Copied", "Listed", "Snapshot", "Snapshots", "all_snapshots", "import_snapshot"]

PREFIX = "snapshot-"  # of names that winlab chooses


def all_snapshots(site: Site | None = None) -> list[Listed]:
    """The snapshots of all labs, the oldest first; those that can't be used come last.

    :raises HostError: libvirt does not answer.
    """
    site = site or Site()
    with site.in_use():
        return listing.every(site)


def import_snapshot(
    path: Path,
    renamed: str | None = None,
    site: Site | None = None,
    *,
    on: str | None = None,
    listener: Listener = ignore,
    stop: Stop = None,
) -> Snapshot:
    """Take a snapshot from a file that :meth:`Snapshots.export` wrote.

    Only import files from people whom you trust as much as the authors of programs that you run.

    :param renamed: what it is called here, ``LAB@NAME`` or ``NAME``; by default as in the file.
    :param on: the hypervisor whose pool gets it; by default the first.
    :raises ConflictError: there is a snapshot of this name, or its memory can't be restored here. Nothing was touched.
    :raises UsageError: it is not such a file, or it has something that winlab does not write; or the site has no
        hypervisor *on*.
    :raises TransferError: it is damaged.
    """
    site = site or Site()
    with site.in_use(), stopping.by(stop):
        return transfer.import_file(path, renamed, site, listener, on=on or HYPERVISOR)


class Snapshots:
    """The snapshots of one lab. ``lab.snapshots`` gives it.

    Names of snapshots may also be ``LAB@NAME``, for one of another lab.

    :param anyone: change the lab even if another user made it.
    """

    def __init__(self, lab: str, site: Site, *, anyone: bool = False) -> None:
        self._lab = lab
        self.site = site
        self._anyone = anyone

    def _id(self, name: str) -> Id:
        return Id.parse(name, self._lab)

    def _require_owner(self) -> None:
        if not self._anyone:
            owner.require(self._lab, self.site)

    @at_site
    def save(
        self, name: str | None = None, *, disks_only: bool = False, listener: Listener = ignore, stop: Stop = None
    ) -> Snapshot:
        """Save the lab at one instant. Its machines pause for some seconds, and continue.

        :param name: by default snapshot-1, snapshot-2 and so on.
        :param disks_only: the lab is off, and its machines have no memory to save.
        :raises ConflictError: there is a snapshot of this name, or the lab can't be saved now. Nothing was touched.
        :raises WinlabError: it could not be saved; the lab is as before.
        """
        self._require_owner()
        which = Id(self._lab, self._free_name(PREFIX) if name is None else snapshots.check_name(name))
        return save.save(which, self.site, listener, disks_only=disks_only)

    def _free_name(self, prefix: str) -> str:
        taken = listing.taken(self._lab, self.site)
        return next(name for number in range(1, len(taken) + 2) if (name := f"{prefix}{number}") not in taken)

    @at_site
    def list(self) -> Sequence[Listed]:
        """The lab's snapshots and what they cost, the oldest first; those that can't be used come last.

        :raises HostError: libvirt does not answer.
        """
        return listing.every(self.site, self._lab)

    @at_site
    def show(self, name: str) -> Listed:
        """One snapshot, and what it costs.

        :raises NotFoundError: there is no such snapshot.
        """
        return listing.one(self._id(name), self.site)

    @at_site
    def delete(self, name: str, *, listener: Listener = ignore, stop: Stop = None) -> Sequence[str]:
        """Delete a snapshot; returns the names of the volumes that were deleted. Copies of it are not affected.

        :raises NotFoundError: there is no such snapshot.
        """
        return deletion.delete(self._id(name), self.site, listener)

    @at_site
    def export(self, name: str, path: Path, *, listener: Listener = ignore, stop: Stop = None) -> None:
        """Write a snapshot to a file, which stands by itself and has the lab's secrets.

        :raises NotFoundError: there is no such snapshot.
        :raises UsageError: there is already such a file, or it can't be written to. Nothing was touched.
        :raises HostError: there is not enough space. Nothing is left of the file.
        """
        transfer.export(self._id(name), path, self.site, listener)

    @at_site
    def reset(self, name: str | None = None, *, listener: Listener = ignore, stop: Stop = None) -> Copied:
        """Put the lab back to a snapshot; what it did since is lost.

        :param name: by default its newest. LAB@NAME may be one of a lab that it is a copy of.
        :raises NotFoundError: there is no such snapshot, or no such lab.
        :raises ConflictError: it is another lab's snapshot, or the memory can't be restored here. Nothing was touched.
        """
        self._require_owner()
        which = listing.newest(self._lab) if name is None else self._id(name)
        return copying.reset(which, self._lab, self.site, listener)

    @at_site
    def clone(
        self,
        labs: Sequence[str],
        name: str | None = None,
        *,
        fresh_credentials: bool = False,
        on: str | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Sequence[Copied]:
        """Make running copies of the lab beside it, all at the same time.

        :param labs: their names.
        :param name: the snapshot; by default the lab is saved for them now.
        :param fresh_credentials: give each its own passwords, keys and administrator, and have it refuse the lab's.
        :param on: the hypervisor that they are made on. By default each node is where its memory was saved, or on
            another one if there is no room.
        :raises NotFoundError: there is no such snapshot. Nothing was touched.
        :raises UsageError: a name can't be a lab's, or the copies can't be on that hypervisor. Nothing was touched.
        :raises ConflictError: there is a lab of one of the names, the memory can't be restored here, or the copies
            can't get their own credentials.
        :raises HostError: there is not enough memory for all of them.
        """
        with self.site.storage() as hosts:
            required.require_free(labs, self._lab, self.site, hosts)
            if name is None and on is not None:
                where.require_possible(on, self._lab, self.site, hosts)
        if name is None:
            self._require_owner()
            which = Id(self._lab, self._free_name("clone-"))
            save.save(which, self.site, listener, automatic=True)
        else:
            which = self._id(name)
        return copying.clone(which, labs, self.site, listener, fresh_credentials=fresh_credentials, on=on)

    @at_site
    def create_from(
        self,
        name: str,
        spec: Spec | None = None,
        *,
        fresh_credentials: bool = False,
        origin: Origin | None = None,
        listener: Listener = ignore,
        stop: Stop = None,
    ) -> Copied:
        """Make this lab from a snapshot, as :meth:`clone` of the snapshot's lab does.

        :param name: the snapshot, usually LAB@NAME.
        :param spec: if given, it must be the one that the snapshot's lab was made from.
        :param fresh_credentials: as for :meth:`clone`.
        :param origin: where kubectl comes from, if this host does not have it.
        :raises NotFoundError: there is no such snapshot. Nothing was touched.
        :raises ConflictError: the lab exists, the spec is another one, or the memory can't be restored here.
        """
        self._require_owner()
        which = self._id(name)
        if spec is not None:
            required.require_spec(snapshots.read(which), spec)
        (made,) = copying.clone(
            which, [self._lab], self.site, listener, fresh_credentials=fresh_credentials, origin=origin or ANYWHERE
        )
        return made
