"""Delete a snapshot. Labs that were made from it keep the disks that they are based on."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from winlab import snapshots
from winlab.adapters.vm.hypervisor import Hypervisors, Silent
from winlab.errors import ConflictError, HostError, NotFoundError, WinlabError
from winlab.events import Listener, StepDone
from winlab.operations.carry_out import one_step
from winlab.operations.snapshot import listing, remains
from winlab.site import Site
from winlab.snapshots import Held, Id

YOUNG = timedelta(minutes=10)  # the clone that saved the lab may still be making its copies


def delete(which: Id, site: Site, tell: Listener) -> list[str]:
    """Delete a snapshot, or what an interrupted save left; returns what was deleted. Safe to repeat.

    :raises NotFoundError: there is no such snapshot.
    :raises ConflictError: another winlab is saving, exporting or importing it.
    :raises HostError: a hypervisor that has, or may have, a part of it does not answer. The rest was deleted; the same
        command deletes that part later.
    """
    with site.storage() as hosts, snapshots.exclusive(which) as mark:
        silent = _silent(which, hosts, mark)
        mark.stays = bool(silent)
        there = snapshots.forget(which)
        gone = one_step(f"delete {which}", lambda _: remains.discard(which, hosts), tell, 1, lab=which.lab)
        if gone and not there:
            silent = list(hosts.silent)  # without a record, any may have more of it
        for one in silent:
            error = one.refusal(f"and the snapshot '{which}' {'has' if there else 'may have'} volumes there")
            cure = f"Run 'winlab snapshot delete {which}' again when it answers."
            if one.name:
                cure += f" If it never will, first run 'winlab hypervisor remove {one.name} --force'."
            raise HostError(error.what, why=f"The rest was deleted. {error.why}", cure=cure, causes=error.causes)
    if not (there or gone or mark.was_killed):
        raise NotFoundError(f"There is no snapshot '{which}'.", cure="'winlab snapshot list' shows all.")
    return gone


def _silent(which: Id, hosts: Hypervisors, mark: Held) -> list[Silent]:
    """The hypervisors that do not answer and have a part of a snapshot; one whose record can't be read may be on any.

    Of a snapshot without a record, they may have what a killed command of this account left.
    """
    try:
        return listing.unreached(snapshots.read(which), hosts)
    except NotFoundError:
        return list(hosts.silent) if mark.was_killed else []
    except WinlabError:
        return list(hosts.silent)


def tidy(lab: str, hosts: Hypervisors, tell: Listener) -> None:
    """Delete the snapshots that ``winlab clone`` made for copies which are gone by now.

    Nothing is deleted while a hypervisor does not answer: it may have copies.

    :param lab: one that is being destroyed. What killed commands left of its snapshots without a record goes, too.
    :raises WinlabError: one can't be deleted.
    """
    if hosts.silent:
        return
    for which in snapshots.ids():
        try:
            record = snapshots.read(which)
        except WinlabError:
            continue  # 'winlab snapshot list' shows it
        if record.automatic and datetime.now(UTC) - record.made >= YOUNG and not listing.copies(which, hosts):
            with suppress(ConflictError):
                with snapshots.exclusive(which):
                    _discard(which, hosts, tell)
                snapshots.forget(which)  # last: until then, the next destroy finds it
    for which in snapshots.interrupted():
        if which.lab == lab:
            with suppress(ConflictError), snapshots.exclusive(which) as mark:
                if mark.was_killed and which not in snapshots.ids():
                    _discard(which, hosts, tell)


def _discard(which: Id, hosts: Hypervisors, tell: Listener) -> None:
    remains.discard(which, hosts)
    tell(StepDone(lab=which.lab, step=f"remove snapshot {which}"))
