"""Whether the memory of a snapshot can be restored here: it depends on the QEMU, the accelerator and the processor."""

from __future__ import annotations

import hashlib

from lxml import etree

from winlab.adapters.vm import connection
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan.model import Plan
from winlab.errors import ConflictError
from winlab.snapshots import Emulator, Snapshot


def require_one(plan: Plan, hosts: Hypervisors) -> Hypervisor:
    """The hypervisor that all machines of a plan are on.

    :raises ConflictError: they are on several: their pauses can't be at the same instant, and their clocks differ.
    :raises HostError: it does not answer.
    """
    first, *others = {node.hypervisor: hosts.on(node) for node in plan.nodes}.values()
    if others:
        raise ConflictError(
            f"The lab '{plan.lab}' can't be saved: its machines are on {1 + len(others)} hypervisors.",
            why="A snapshot has all machines at one instant, and is restored where it was saved. This version does "
            "that on one hypervisor only.",
            cure="Save a lab whose machines are all on one hypervisor.",
        )
    return first


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


def require(snapshot: Snapshot, hosts: Hypervisors) -> None:
    """Check that the memory of a snapshot can be restored on the hypervisors of its machines.

    :raises ConflictError: it can't; nothing was touched.
    :raises HostError: one of them does not answer; nothing was touched.
    """
    needed = {node.hypervisor: hosts.on(node) for node in snapshot.plan.nodes}
    if not snapshot.memory:
        return
    saved = snapshot.emulator
    for host in needed.values():
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
