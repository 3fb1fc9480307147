"""``winlab host teardown``: undo exactly what setup did, and leave everything else alone."""

from __future__ import annotations

import os
from pathlib import Path

from winlab import settings
from winlab.errors import AccessError, ConflictError, HostError, WinlabError
from winlab.events import Progress, Quiet
from winlab.host import attachment, daemons, fabric, firewall, labs, routes, storage, units
from winlab.host.changes import Changes, Record, alone
from winlab.host.site import admission, databases, external, join, own_facts
from winlab.run import run


def teardown(progress: Progress, *, force: bool = False) -> None:
    """Undo what setup did on this host. May be run again. Stopped services are started for it.

    :param force: also remove remaining labs: their virtual machines, disks and networks.
    :raises AccessError: not run by root.
    :raises ConflictError: there are labs, and *force* is not given.
    :raises HostError: a required service can't be started, or it is not known which site this host is part of, and
        *force* is not given. Nothing was undone then.
    """
    if os.geteuid() != 0:
        raise AccessError("'winlab host teardown' must be run by root.", cure="Run 'sudo winlab host teardown'.")
    with alone(progress):
        _teardown(progress, force=force)


def _teardown(progress: Progress, *, force: bool) -> None:
    record = Record()
    before = record.changes.model_copy(deep=True)
    known = own_facts.read(record, Quiet(), force=force)
    again = _start(record, progress) if record.path.exists() else []
    is_first = not record.changes.ssl
    if is_first and force:
        databases.bring_back(record, progress)  # a cluster may have lost its leader
    remaining, members = labs.find(rows=is_first), admission.members(known)
    if (remaining or members) and not force:
        if again:
            daemons.stop_again(again, before, record, progress)
        raise _labs_conflict(remaining) if remaining else _members_conflict(members)
    if remaining:
        labs.remove(progress, rows=is_first)

    if not record.path.exists():
        progress.say("there is nothing to undo", 1.0)
        return
    external.undo(record, progress)
    if is_first:
        databases.bring_back(record, progress)
    admission.undo(record, known, progress)
    for name in known.attached:
        attachment.undo(name, record, progress)
    for network in known.ways:
        routes.remove(network)
    firewall.undo_forwarding(known, record, progress)
    if record.changes.pool:
        storage.undo_pool(record, progress)
    if record.changes.switch or record.changes.connection:
        fabric.undo_rows(record, progress)
    if record.changes.ssl:
        databases.leave(known, progress)
        join.undo(record, known, progress)
        databases.drop(record, progress)
    if record.changes.mapping or record.changes.ovs_ids:
        fabric.undo_ids(record)
    _leave_what_others_use(record, again, progress)
    daemons.stop("ovn-host", record, progress)
    daemons.stop("ovn-central", record, progress)
    if record.changes.bridges:
        fabric.undo_bridges(record, progress)
    daemons.stop("ovs", record, progress)
    daemons.stop("libvirt", record, progress)
    _restore_files(record)
    progress.say("the host is as it was before setup", 1.0)


def _labs_conflict(remaining: set[str]) -> ConflictError:
    return ConflictError(
        f"This host still has labs: {', '.join(sorted(remaining))}.",
        why="Their machines, disks and networks would be lost.",
        cure="Run 'winlab destroy' for each, or use --force to remove them, too.",
    )


def _members_conflict(members: list[str]) -> ConflictError:
    return ConflictError(
        f"Other hosts have joined this host's site: {', '.join(members)}.",
        why="OVN's databases on this host control their network.",
        cure="Run 'sudo winlab host teardown' on them first, or use --force here.",
    )


def needed(changes: Changes) -> list[str]:
    """The services that must run to undo *changes*, in the order of starting."""
    services = []
    if changes.pool:
        services.append("libvirt")
    # The controller removes its patch ports when the external switch is removed, also from other bridges.
    if changes.bridges or changes.mapping or changes.ovs_ids or changes.switch or changes.ssl:
        services.append("ovs")
    if changes.switch or changes.connection:
        services.append("ovn-central")
    if changes.switch:
        services.append("ovn-host")
    return services


def _start(record: Record, progress: Progress) -> list[str]:
    """Start those services that must run to undo what is recorded and are down, as after a reboot.

    :raises HostError: one can't be started. Nothing has changed then, the record included.
    """
    before = record.changes.model_copy(deep=True)
    again: list[str] = []
    for service in needed(before):
        if daemons.is_up(service):
            continue
        again.append(service)
        try:
            daemons.ensure(service, record, progress, enable=False)
        except WinlabError as error:
            daemons.stop_again(again, before, record, progress)
            raise HostError(
                f"Setup's changes can't be undone, because {service} does not run and can't be started.",
                why=str(error),
                cure=f"Fix that and run teardown again. The record of what to undo is kept: '{record.path}'.",
                causes=[error],
            ) from error
    return again


def _leave_what_others_use(record: Record, again: list[str], progress: Progress) -> None:
    """Let services that setup started keep running if something else uses them now.

    :param again: services that were just started; nothing else uses those.
    """

    def leave(service: str, why: str) -> None:
        if daemons.leave(service, record):
            progress.say(why)

    used = [service for service in daemons.SERVICES if service not in again and daemons.is_up(service)]
    ours = set(record.changes.bridges)
    if "ovn-central" in used and labs.foreign_rows():
        leave("ovn-central", "OVN's databases keep running: they have switches or routers that are not winlab's")
        # The controller can keep running with others' external_ids, but not without the ones from setup.
        if "ovn-host" in used and "ovs" in used and "ovn-remote" in fabric.ovs_ids():
            leave("ovn-host", "OVN's controller keeps running: its ovn-remote was not set by winlab")
            ours -= {settings.INTEGRATION_BRIDGE}
            record.changes.bridges = sorted(ours)
            record.save()
    if "ovs" in used and (others := [name for name in fabric.bridges() if name not in ours]):
        leave("ovs", f"Open vSwitch keeps running: it has the bridges {', '.join(others)}")
    if "libvirt" in used and (names := storage.virsh("list", "--name", check=False).stdout.split()):
        leave("libvirt", f"libvirt keeps running: it runs {', '.join(names)}")


def _restore_files(record: Record) -> None:
    """Remove the files and empty folders that setup made, and give the others the mode they had."""
    changes = record.changes
    for name, was in changes.modes.items():
        path = Path(name)
        if path.exists():
            os.chown(path, was.uid, was.gid)
            path.chmod(was.mode)
    if str(units.UNIT) in changes.files:
        # Stopped, too: one that is just starting waits for teardown, and would then set the host up again.
        run(["systemctl", "disable", "--now", "--quiet", units.UNIT.name], check=False, timeout=60)
        run(["systemctl", "reset-failed", units.UNIT.name], check=False, timeout=60)
    for name in changes.files:
        Path(name).unlink(missing_ok=True)
    if units.DROP_IN.parent.is_dir() and not any(units.DROP_IN.parent.iterdir()):
        units.DROP_IN.parent.rmdir()
    if daemons.has_systemd() and changes.files:
        run(["systemctl", "daemon-reload"], check=False, timeout=60)
    record.remove()
    # The deepest first; a folder with anything else in it stays.
    for name in sorted(changes.folders, key=len, reverse=True):
        path = Path(name)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
