"""A saved lab: its record, and the snapshot's volumes in a pool."""

from __future__ import annotations

import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import disks
import plans
from pools import MemoryPool

from winlab.adapters.vm import save_image
from winlab.design import spec
from winlab.design.plan import credentials, make
from winlab.design.plan.credentials import Credentials
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain
from winlab.operations.snapshot import contents
from winlab.snapshots import Emulator, Id, SavedNode, Snapshot

ID = Id("lab", "ready")
CD = "base-kubernetes-linux-0123456789abcdef.iso"
MEMORY = b"memory".ljust(4096) + bytes((1 << 20) - 4096)
EMULATOR = Emulator(accelerator="tcg", version="7.2.22", cpu="")


@functools.cache
def plan() -> Plan:
    """One controller, one Windows worker, with little memory."""
    wanted = spec.load("1-1-1", ())
    made = make.make(wanted, "lab", plans.TCG, plans.stock(wanted))
    return made.model_copy(update={"nodes": tuple(node.model_copy(update={"memory_mib": 1}) for node in made.nodes)})


@functools.cache
def split_plan() -> Plan:
    """The same, with the worker on a second hypervisor."""
    made = plan()
    there = {"node-1": "hypervisor-2"}
    nodes = [node.model_copy(update={"hypervisor": there.get(node.name, node.hypervisor)}) for node in made.nodes]
    facts = {node.hypervisor: made.host.machine for node in nodes}
    placed = {node.name: "most free memory" for node in nodes}
    network = made.network.model_copy(update={"mtu": 1442})
    return made.model_copy(update={"nodes": tuple(nodes), "hosts": facts, "placed": placed, "network": network})


@functools.cache
def secrets() -> Credentials:
    """Its credentials."""
    return credentials.generate(plan())


def definition(made: Plan, node: NodePlan, pool: str = "/pool") -> str:
    """The machine's XML, with a shared CD in its first empty drive."""
    xml = domain.domain_xml(made, node, "secret", Path(pool))
    empty = '<disk type="file" device="cdrom">\n      <target'
    filled = (
        f'<disk type="file" device="cdrom">\n      <driver name="qemu" type="raw"/><source file="{pool}/{CD}"/><target'
    )
    return xml.replace(empty, filled, 1)


class _Host:
    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool


def snapshot(pool: MemoryPool, *, memory: bool = True, split: bool = True, **changes: Any) -> Snapshot:
    """Make a snapshot's volumes, and its record."""
    made, wanted = plan(), spec.load("1-1-1", ())
    pool.put(CD, b"the CD")
    pool.digests[CD] = "of something"
    nodes = {}
    for node in made.nodes:
        xml = definition(made, node)
        drives = contents.drives(ID, _Host(pool), node, xml)  # type: ignore[arg-type]
        for drive in drives.values():
            if drive.kind == "disk":
                pool.put(f"base-{node.name}.qcow2", b"base")
                pool.put(f"lab.{drive.what}", f"frozen {drive.what}".encode(), f"base-{node.name}.qcow2")
                pool.put(drive.volume, b"", f"lab.{drive.what}")
            elif drive.kind == "shared":
                pool.put(drive.volume, b"", CD)
            else:
                pool.put(drive.volume, disks.qcow2() if drive.what.endswith("qcow2") else b"own " + drive.what.encode())
        image = save_image.header(xml, "<cookie><slirpHelper/></cookie>")
        if not memory:
            pool.put(ID.volume(node.name, "xml"), xml.encode())
        elif split:
            pool.put(ID.volume(node.name, "state"), image + b"devices")
            pool.put(ID.volume(node.name, "memory"), MEMORY)
        else:
            pool.put(ID.volume(node.name, "save"), image + b"devices and memory")
        nodes[node.name] = SavedNode(
            drives=drives,
            memory_mib=1,
            split=split if memory else None,
            sample=0 if memory and split else None,
        )
    record = Snapshot(
        lab="lab",
        name="ready",
        made=datetime(2026, 11, 27, 12, tzinfo=UTC),
        made_by="0.1",
        memory=memory,
        paused=4.2,
        emulator=EMULATOR,
        nodes=nodes,
        routes={"10.244.1.0/24": "10.77.0.101"},
        plan=made,
        spec=wanted,
        roots=(Path("/home/theirs"),),
        credentials=secrets(),
        kubeconfig=None,
        kubectl=Path("/home/theirs/kubectl"),
    )
    return record.model_copy(update=changes)
