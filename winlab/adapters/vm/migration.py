"""Moves a running domain to another host's libvirt, with its disks, over TLS.

The two libvirts talk only through this process, and their QEMUs directly to each other. If this process ends, the
source cancels the move and the target removes what it began (virCloseCallbacks of libvirt). Source: libvirt's
migration.rst and libvirt-domain.h.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import libvirt

from winlab import stopping
from winlab.adapters.vm.connection import answering, explained
from winlab.adapters.vm.domains import Named, find, get
from winlab.adapters.vm.hypervisor import Hypervisor

FLAGS = (
    libvirt.VIR_MIGRATE_LIVE
    | libvirt.VIR_MIGRATE_TLS
    | libvirt.VIR_MIGRATE_NON_SHARED_INC
    | libvirt.VIR_MIGRATE_PERSIST_DEST
    | libvirt.VIR_MIGRATE_UNDEFINE_SOURCE
    | libvirt.VIR_MIGRATE_ABORT_ON_ERROR
)
LOOK = 0.2  # seconds between two looks at the progress
ABANDONED = 60.0  # seconds in which libvirt cancels a move whose winlab has ended
CURE = (
    "The node is where it was. Check that its host can reach the TCP ports 49152 to 49215 of the other, and that "
    "'sudo winlab host setup' has run on both with this version. 'winlab move --cold' moves it while it is off."
)


@dataclass(frozen=True)
class Way:
    """Where a machine is sent: the address of the other host, and the name in its certificate."""

    address: str
    name: str


def live(
    source: Hypervisor, target: Hypervisor, machine: Named, way: Way, tell: Callable[[float | None], None]
) -> None:
    """Move a running or suspended domain. The volumes of its disks must exist there, empty, over the same bases.

    :param tell: receives the progress, 0 to 1; if it raises an error, the move is cancelled.
    :raises WinlabError: it did not move; it runs where it was.
    """
    domain = get(source.conn, machine)
    uri = f"tcp:{way.address}"
    params: dict[str, Any] = {
        libvirt.VIR_MIGRATE_PARAM_URI: uri,
        libvirt.VIR_MIGRATE_PARAM_LISTEN_ADDRESS: way.address,
        libvirt.VIR_MIGRATE_PARAM_TLS_DESTINATION: way.name,
    }
    failed: list[BaseException] = []

    def move() -> None:
        try:
            domain.migrate3(target.conn, params, FLAGS)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(LOOK)
            tell(_progress(domain))
    except BaseException:
        with suppress(libvirt.libvirtError):
            domain.abortJob()
        thread.join(stopping.CLEAN_UP)
        raise
    with explained(f"'{machine.domain}' can't be moved to '{target.name}' while it runs.", CURE):
        for error in failed:
            raise error


def _progress(domain: libvirt.virDomain) -> float | None:
    """How much of a move is done; None if that is not known."""
    with suppress(libvirt.libvirtError):
        _, _, _, total, processed, *_ = domain.jobInfo()
        return min(1.0, processed / total) if total else None
    return None


@answering()
def await_idle(host: Hypervisor, machine: Named) -> bool:
    """Wait until libvirt has cancelled a move whose winlab has ended; returns whether no move is under way."""
    end = time.monotonic() + ABANDONED
    while (domain := find(host.conn, machine)) is not None:
        kind = domain.jobInfo()[0]
        if kind in (libvirt.VIR_DOMAIN_JOB_NONE, libvirt.VIR_DOMAIN_JOB_COMPLETED):
            return True
        if time.monotonic() > end:
            return False
        stopping.sleep(1)
    return True


@answering()
def has_arrived(host: Hypervisor, machine: Named) -> bool:
    """Whether a domain that moved here while it ran is complete: libvirt defines it last (qemuMigrationDstFinish)."""
    domain = find(host.conn, machine)
    return domain is not None and bool(domain.isPersistent())


def define(host: Hypervisor, machine: Named, xml: str) -> None:
    """Define a domain that was elsewhere."""
    with explained(f"'{machine.domain}' can't be defined on '{host.name}'."):
        host.conn.defineXML(xml)


@answering()
def has_saved_memory(host: Hypervisor, machine: Named) -> bool:
    """Whether a user saved the domain's memory with libvirt, to be restored at its next start."""
    domain = find(host.conn, machine)
    return domain is not None and bool(domain.hasManagedSaveImage())
