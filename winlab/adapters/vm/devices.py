"""Disks of a domain, and the CDs in its drives."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import quoteattr

import libvirt
from lxml import etree

from winlab.adapters.vm.connection import answering, explained
from winlab.adapters.vm.domains import Named, find, get, now_and_later


@answering()
def inserted(conn: libvirt.virConnect, machine: Named) -> dict[str, Path]:
    """The files of the CDs in the domain's drives, by target name."""
    domain = find(conn, machine)
    if domain is None:
        return {}
    root = etree.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE).encode())
    cds = [disk for disk in root.findall("devices/disk[@device='cdrom']") if disk.find("source") is not None]
    return {str(disk.find("target").get("dev")): Path(str(disk.find("source").get("file"))) for disk in cds}


@answering()
def medium(conn: libvirt.virConnect, machine: Named, target: str) -> Path | None:
    """The file of the CD that is in a drive now; None if the drive is empty or there is no such domain."""
    domain = find(conn, machine)
    if domain is None:
        return None
    source = etree.fromstring(domain.XMLDesc(0).encode()).find(f"devices/disk/target[@dev='{target}']/../source")
    return None if source is None else Path(str(source.get("file")))


@answering()
def has_disk(conn: libvirt.virConnect, machine: Named, target: str) -> bool:
    """Whether the domain has a disk with this target name."""
    root = etree.fromstring(get(conn, machine).XMLDesc(0).encode())
    return root.find(f"devices/disk/target[@dev='{target}']") is not None


def attach(conn: libvirt.virConnect, machine: Named, target: str, path: Path) -> None:
    """Attach another qcow2 disk on virtio-scsi to the domain, now and for later starts."""
    disk = (
        f"<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/>"
        f"<source file={quoteattr(str(path))}/><target dev='{target}' bus='scsi'/></disk>"
    )
    domain = get(conn, machine)
    flags = now_and_later(domain)
    with explained(f"The disk '{path}' can't be attached to '{machine.domain}'."):
        domain.attachDeviceFlags(disk, flags)


def insert(conn: libvirt.virConnect, machine: Named, target: str, bus: str, path: Path) -> None:
    """Insert a CD (a file) into a drive instead of its present one, now and for later starts."""
    _change(conn, machine, target, bus, f"<source file={quoteattr(str(path))}/>")


def eject(conn: libvirt.virConnect, machine: Named, target: str, bus: str = "sata") -> None:
    """Take the CD out of a drive, now and for later starts."""
    _change(conn, machine, target, bus, "")


def _change(conn: libvirt.virConnect, machine: Named, target: str, bus: str, source: str) -> None:
    domain = get(conn, machine)
    drive = (
        f"<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>{source}"
        f"<target dev='{target}' bus='{bus}'/><readonly/></disk>"
    )
    flags = libvirt.VIR_DOMAIN_AFFECT_CONFIG | libvirt.VIR_DOMAIN_DEVICE_MODIFY_FORCE
    if domain.isActive():
        flags |= libvirt.VIR_DOMAIN_AFFECT_LIVE
    cure = "Run the same command again; if its machine has ended meanwhile, that starts it."
    with explained(f"The CD in '{target}' of '{machine.domain}' can't be changed.", cure):
        domain.updateDeviceFlags(drive, flags)
