"""Domains and their memory: saved while they stay, and restored.

A domain is saved by an external snapshot, not by ``virDomainSave``: the guest keeps running in the same process, and
its disks continue in overlays. libvirt writes the memory in the format of its save images, with the domain's XML as it
is for the next start. Source: libvirt's snapshot format, and qemuSnapshotCreateActiveExternal in qemu_snapshot.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import libvirt
from lxml import etree
from lxml.builder import E as X

from winlab import stopping
from winlab.adapters.vm import domains, power
from winlab.adapters.vm.connection import Connection, answering, explained
from winlab.adapters.vm.domains import Named, get

FLAGS = libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_ATOMIC | libvirt.VIR_DOMAIN_SNAPSHOT_CREATE_NO_METADATA
POLL = 0.5  # seconds
DOCTOR = "Run the same command again; 'winlab doctor' says whether the host is ready for copies."
FULL = "Free some space: 'winlab image prune' and 'winlab snapshot delete' help. The lab was not changed."


def save(conn: Connection, machine: Named, image: Path, overlays: Mapping[str, Path]) -> None:
    """Write the memory and the devices of a domain to an image. Its disks continue in new overlays, now and later.

    The domain is paused meanwhile. If libvirt fails, the disks are as before, and the domain runs if it did.

    :param image: where, on the hypervisor.
    :param overlays: the file of each disk's overlay by its target; libvirt makes them. Other drives stay as they are.
    :raises WinlabError: libvirt refuses, as when there is no space.
    """
    domain = get(conn, machine)
    with explained(f"'{machine.domain}' can't be saved.", FULL):
        root = etree.fromstring(domain.XMLDesc(0).encode())
        targets = [str(one.get("dev")) for one in root.findall("devices/disk/target")]
        domain.snapshotCreateXML(_snapshot(targets, overlays, image), FLAGS)


def end_save(conn: Connection, machine: Named) -> bool:
    """End a save that was killed, so that the domain runs; returns whether it was paused.

    libvirt does not notice that winlab was killed: it may still be writing the memory. Until it has ended that, it
    resumes no domain (qemuSnapshotCreateActiveExternal and qemuDomainAbortJobFlags in libvirt's src/qemu).

    :raises WinlabError: libvirt refuses.
    """
    domain = get(conn, machine)
    with suppress(libvirt.libvirtError):  # it does nothing with the domain
        domain.abortJob()
    was_paused = domains.state(conn, machine) in domains.PAUSED
    power.resume(conn, machine)
    return was_paused


def job(conn: Connection, machine: Named) -> tuple[int, int] | None:
    """How many bytes of a domain's memory libvirt has written, and of how many; None if it is not writing them.

    It keeps writing if winlab is killed, and resumes no domain until it has ended. A job that has ended has no type, so
    one that is complete is still being ended (virDomainObjResetAsyncJob in libvirt's src/conf/domain_job.c).
    """
    domain = domains.find(conn, machine)
    if domain is None:
        return None
    try:
        kind, _, _, total, done, *_ = domain.jobInfo()
    except libvirt.libvirtError:
        return None  # it is off, or libvirt does not answer: the next call says so
    return None if kind == libvirt.VIR_DOMAIN_JOB_NONE else (int(done), int(total))


def _snapshot(targets: Iterable[str], overlays: Mapping[str, Path], image: Path) -> str:
    disks = X.disks()
    for target in targets:
        if target in overlays:
            file = X.source(file=str(overlays[target]))
            disks.append(X.disk(X.driver(type="qcow2"), file, name=target, snapshot="external", type="file"))
        else:
            disks.append(X.disk(name=target, snapshot="no"))
    made = X.domainsnapshot(X.memory(snapshot="external", file=str(image)), disks)
    return str(etree.tostring(made, encoding="unicode"))


def restore(conn: Connection, machine: Named, image: Path) -> None:
    """Start a defined domain from a save image; it stays paused.

    :param image: on the hypervisor; its XML has the domain's name and UUID.
    :raises WinlabError: libvirt or QEMU refuses.
    """
    with explained(f"'{machine.domain}' can't be restored.", DOCTOR, f"/var/log/libvirt/qemu/{machine.domain}.log"):
        conn.restoreFlags(str(image), None, libvirt.VIR_DOMAIN_SAVE_PAUSED)


def memory_at(conn: Connection, machine: Named, offset: int, length: int) -> bytes:
    """A piece of a running or paused domain's memory, by its physical address."""
    with explained(f"The memory of '{machine.domain}' can't be read."):
        return bytes(get(conn, machine).memoryPeek(offset, length, libvirt.VIR_MEMORY_PHYSICAL))


def flatten(conn: Connection, machine: Named, target: str, base: Path, tell: Callable[[float], None]) -> None:
    """Copy what a running domain's disk has from the files below it into its own file, as far as *base*.

    The guest keeps running. Interrupted, the disk is as before, and the next call resumes.

    :param base: the path, on the hypervisor, of the file that the disk is based on then.
    :param tell: receives the progress, 0 to 1.
    :raises WinlabError: libvirt refuses.
    """
    domain = get(conn, machine)
    with explained(f"The disk '{target}' of '{machine.domain}' can't be flattened.", FULL):
        if not domain.blockJobInfo(target, 0):
            domain.blockRebase(target, str(base), 0, 0)
    settle(conn, machine, target, tell)


def settle(conn: Connection, machine: Named, target: str, tell: Callable[[float], None]) -> None:
    """Wait until a running domain's disk is not being flattened. Until then, the domain can't be saved.

    libvirt keeps copying if winlab is interrupted.

    :param tell: receives the progress, 0 to 1.
    :raises WinlabError: libvirt refuses.
    """
    domain = get(conn, machine)
    with explained(f"The disk '{target}' of '{machine.domain}' can't be flattened.", FULL):
        while (job := domain.blockJobInfo(target, 0)) and job["type"] == libvirt.VIR_DOMAIN_BLOCK_JOB_TYPE_PULL:
            tell(job["cur"] / max(1, job["end"]))
            stopping.sleep(POLL)


def define(conn: Connection, machine: Named, xml: str) -> str:
    """Define a domain, or redefine it for its next start; returns the definition as libvirt has completed it.

    :raises WinlabError: libvirt refuses.
    """
    with explained(f"The domain '{machine.domain}' can't be defined."):
        domain = conn.defineXML(xml)
        return _definition(domain)


@answering()
def definition(conn: Connection, machine: Named) -> str:
    """The domain's definition with its secrets, as a save image has it. Never to be printed or logged.

    :raises NotFoundError: there is no such domain.
    """
    return _definition(get(conn, machine))


def _definition(domain: libvirt.virDomain) -> str:
    flags = libvirt.VIR_DOMAIN_XML_INACTIVE | libvirt.VIR_DOMAIN_XML_SECURE | libvirt.VIR_DOMAIN_XML_MIGRATABLE
    return str(domain.XMLDesc(flags))
