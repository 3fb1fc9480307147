"""``winlab host teardown``: undo what setup did, exactly that, and leave everything else alone."""

from __future__ import annotations

import os
from pathlib import Path

from winlab.errors import AccessError, ConflictError
from winlab.events import Progress
from winlab.host import daemons, fabric, firewall, labs, storage, units
from winlab.host.changes import Record
from winlab.run import run


def teardown(progress: Progress, *, force: bool = False) -> None:
    """Undo what setup did on this host. Twice in a row is fine.

    :param force: remove what is left of labs as well: their virtual machines, disks and networks.
    :raises AccessError: not run by root.
    :raises ConflictError: there are labs, and *force* is not given.
    """
    if os.geteuid() != 0:
        raise AccessError("'winlab host teardown' must be run by root.", cure="Run 'sudo winlab host teardown'.")
    record = Record()
    found = labs.find()
    if found and not force:
        raise ConflictError(
            f"There are labs on this host: {', '.join(sorted(found))}.",
            why="Their machines, disks and networks would be lost.",
            cure="Run 'winlab destroy' for each, or give --force to remove them with the rest.",
        )
    if found:
        labs.remove(progress)

    if not record.path.exists():
        progress.say("there is nothing to undo", 1.0)
        return
    firewall.undo_forwarding(record, progress)
    if daemons.libvirt_up():
        storage.undo_pool(record, progress)
    if daemons.northd_up():
        fabric.undo_rows(record, progress)
    if daemons.ovs_up():
        fabric.undo_ids(record)
    _stop_ovn(record, progress)
    if daemons.ovs_up():
        fabric.undo_bridges(record, progress)
        if others := fabric.other_bridges():
            _leave(record, "ovs", f"Open vSwitch goes on: it has the bridges {', '.join(others)}", progress)
    daemons.stop_daemon("ovs", record, progress)
    _stop_libvirt(record, progress)
    daemons.stop_units(record, progress)
    _restore_files(record)
    progress.say("the host is as it was", 1.0)


def _leave(record: Record, daemon: str, why: str, progress: Progress) -> None:
    """Let a daemon that setup started go on, because somebody else uses it by now."""
    if daemon in record.changes.daemons:
        progress.say(why)
        del record.changes.daemons[daemon]
        record.save()


def _stop_ovn(record: Record, progress: Progress) -> None:
    # The controller can't go on without the external_ids that setup gave it; the databases can.
    daemons.stop_daemon("controller", record, progress)
    if daemons.northd_up() and labs.foreign_rows():
        _leave(record, "northd", "OVN's databases go on: they have switches or routers that are not winlab's", progress)
    daemons.stop_daemon("northd", record, progress)


def _stop_libvirt(record: Record, progress: Progress) -> None:
    if daemons.libvirt_up() and (names := storage.virsh("list", "--name", check=False).stdout.split()):
        for daemon in ("libvirtd", "virtlogd"):
            _leave(record, daemon, f"libvirt goes on: it runs {', '.join(names)}", progress)
    daemons.stop_daemon("libvirtd", record, progress)
    daemons.stop_daemon("virtlogd", record, progress)


def _restore_files(record: Record) -> None:
    """Remove the files and empty folders that setup made, and give the others the mode they had."""
    changes = record.changes
    for name, was in changes.modes.items():
        path = Path(name)
        if path.exists():
            os.chown(path, was.uid, was.gid)
            path.chmod(was.mode)
    if str(units.UNIT) in changes.files:
        run(["systemctl", "disable", "--quiet", units.UNIT.name], check=False, timeout=60)
    for name in changes.files:
        Path(name).unlink(missing_ok=True)
    if units.DROP_IN.parent.is_dir() and not any(units.DROP_IN.parent.iterdir()):
        units.DROP_IN.parent.rmdir()
    if daemons.has_systemd() and changes.files:
        run(["systemctl", "daemon-reload"], check=False, timeout=60)
    record.remove()
    # The deepest first; one that holds something of somebody else's stays.
    for name in sorted(changes.folders, key=len, reverse=True):
        path = Path(name)
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
