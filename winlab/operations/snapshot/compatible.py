"""Whether the memory of a snapshot can be restored here: it depends on the QEMU, the accelerator and the processor."""

from __future__ import annotations

import hashlib

from lxml import etree

from winlab.adapters.vm import connection
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.errors import ConflictError
from winlab.snapshots import Emulator, Snapshot


def emulator(hosts: Hypervisors) -> Emulator:
    """What memory that is saved here can be restored with.

    :raises HostError: libvirt does not answer.
    """
    return _of(next(iter(hosts)))


def _of(host: Hypervisor) -> Emulator:
    accelerator = host.facts.accelerator
    versions = connection.versions(host.conn)
    return Emulator(
        accelerator=accelerator,
        version=versions.get("QEMU", ""),
        # an emulated guest has QEMU's own processor; otherwise it has the host's
        cpu="" if accelerator == "tcg" else _processor(host),
    )


def _processor(host: Hypervisor) -> str:
    with connection.answering():
        cpu = etree.fromstring(host.conn.getCapabilities().encode()).find("host/cpu")
    if cpu is None:
        return "unknown"
    for varying in ("counter", "microcode", "topology", "pages", "maxphysaddr"):
        for one in cpu.findall(varying):
            cpu.remove(one)
    rows = sorted(f"{one.tag} {one.get('name', '')} {(one.text or '').strip()}" for one in cpu)
    model = (cpu.findtext("model") or "unknown").strip()
    return f"{model} {hashlib.sha256('|'.join(rows).encode()).hexdigest()[:12]}"


def require(snapshot: Snapshot, hosts: Hypervisors) -> None:
    """Check that the memory of a snapshot can be restored on these hypervisors.

    :raises ConflictError: it can't; nothing was touched.
    """
    if not snapshot.memory:
        return
    saved = snapshot.emulator
    for host in hosts:
        here = _of(host)
        differing = [
            f"{what} was {was or 'unknown'}, and is {now or 'unknown'} on {host.name}"
            for what, was, now in (
                ("the accelerator", saved.accelerator, here.accelerator),
                ("QEMU", _minor(saved.version), _minor(here.version)),
                ("the processor", saved.cpu, here.cpu),
            )
            if was != now
        ]
        if differing:
            raise ConflictError(
                f"The memory of the snapshot '{snapshot.id}' can't be restored here.",
                why="; ".join(differing) + ".",
                cure="Use the host that saved it; or make the lab with 'winlab create', and save it again.",
            )


def _minor(version: str) -> str:
    """A version without its last number: fixes don't change what a guest sees."""
    return ".".join(version.split(".")[:2])
