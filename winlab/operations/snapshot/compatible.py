"""Whether the memory of a snapshot can be restored here: it depends on the QEMU, the accelerator and the processor."""

from __future__ import annotations

import hashlib

from lxml import etree

from winlab.adapters.vm import connection
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan.model import Plan
from winlab.errors import ConflictError
from winlab.snapshots import Emulator, Snapshot


def emulator(host: Hypervisor) -> Emulator:
    """What memory that is saved on a hypervisor can be restored with.

    :raises HostError: libvirt does not answer.
    """
    return _of(host)


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


def require(snapshot: Snapshot, plan: Plan, hosts: Hypervisors) -> None:
    """Check that the memory of a snapshot can be restored on the hypervisors of a plan's nodes.

    :raises ConflictError: it can't; nothing was touched.
    :raises HostError: one of them does not answer, or one that has the snapshot; nothing was touched.
    """
    for node in (*snapshot.plan.nodes, *plan.nodes):
        hosts.on(node)
    if not snapshot.memory:
        return
    here = {host.name: emulator(host) for host in {node.hypervisor: hosts.on(node) for node in plan.nodes}.values()}
    for node in plan.nodes:
        if differing := differences(snapshot.emulator_of(node.name), here[node.hypervisor], node.hypervisor):
            raise ConflictError(
                f"The memory of the snapshot '{snapshot.id}' can't be restored here.",
                why=differing,
                cure="Use the host that saved it; or make the lab with 'winlab create', and save it again.",
            )


def differences(saved: Emulator, here: Emulator, host: str) -> str:
    """Why memory can't be restored on a hypervisor, a sentence; empty if it can."""
    rows = (
        ("the accelerator", saved.accelerator, here.accelerator),
        ("QEMU", _minor(saved.version), _minor(here.version)),
        ("the processor", saved.cpu, here.cpu),
    )
    found = [
        f"{what} was {was or 'unknown'}, and is {now or 'unknown'} on {host}" for what, was, now in rows if was != now
    ]
    return f"{'; '.join(found)}." if found else ""


def _minor(version: str) -> str:
    """A version without its last number: fixes don't change what a guest sees."""
    return ".".join(version.split(".")[:2])
