"""The volumes in the storage pool: a machine's own, and the base volumes under them.

A disk holds what its guest wrote, so a lost one is reported and never recreated here. A base volume is restored only
with exactly the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from winlab.adapters.vm import definitions, disks, domains, machine_xml
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import volume_names
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.steps import systems
from winlab.steps.cut_off import has_disk
from winlab.steps.states import PAYLOAD, PAYLOAD_INSERTED, SEED
from winlab.supply.images import cache
from winlab.supply.payload import PREFIX

BASE = "base-"


def own(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Each machine's disk: whether it exists, its header, its size and its base volume."""
    run = subject.run
    progress.say("looking at the volumes")
    for host in run.hosts(subject.nodes):
        host.pool.refresh()  # libvirt does not notice by itself what other programs did to the folder
    for node in subject.nodes:
        pool = run.on(node).pool
        disk = disks.live(run.on(node), node)
        if not has_disk(run, node):
            actual = "damaged" if pool.exists(disk.name) else "gone"
            yield _told(node, disk.name, "there", actual, _lost(run, node))
            continue
        if disk.capacity_mib is not None and (size := pool.capacity(disk.name) >> 20) < disk.capacity_mib:
            yield _told(node, f"{disk.name}: size", f"{disk.capacity_mib} MiB", f"{size} MiB", _lost(run, node))
        if disk.backing is not None and pool.backing(disk.name) is None:
            yield _told(node, f"{disk.name}: base", disk.backing, "none", _lost(run, node))
        for name in disks.chain(pool, disk.name):
            if volume_names.is_made(name) and not pool.exists(name):  # an earlier generation; for others see bases
                yield _told(node, name, "there", "gone", _lost(run, node))


def _told(node: NodePlan, what: str, expected: str, actual: str, action: str) -> Finding:
    return Finding(Drift("volume", node.name, what, expected, actual, action, repairable=False))


def _lost(run: Run, node: NodePlan) -> str:
    if (node.role != "controller" or not run.folder.has(run.folder.kubeconfig)) and domains.state(
        run.on(node).conn, node
    ) == "gone":
        return "run the lab's create command again: it makes what is missing"
    if node.role != "controller":
        return f"what was on it is lost: 'winlab node rebuild {node.name}' makes the node again"
    return "what was on it is lost: destroy the lab and create it again"


def inserted(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The volumes that machines need to start, besides their disks: libvirt starts no machine without them."""
    run = subject.run
    for node in subject.nodes:
        for name in _attached(run, node):
            if name.startswith(PREFIX) and run.on(node).pool.exists(name) and not run.on(node).pool.is_complete(name):
                drift = Drift("volume", node.name, f"{name}: marker", "there", "gone", "made again", repairable=True)
                yield Finding(drift, None, (PAYLOAD_INSERTED,), (PAYLOAD,))
                continue
            if run.on(node).pool.exists(name) or volume_names.first(name) == node.volume("disk").name:
                continue
            if name.startswith(PREFIX) or name in _lent(run.lab, node):
                drift = Drift("volume", node.name, name, "there", "gone", "made and inserted again", repairable=True)
                yield Finding(drift, None, (PAYLOAD_INSERTED,), (PAYLOAD,))
            elif any(volume.name == name and volume.role == "seed" for volume in node.volumes):
                drift = Drift("volume", node.name, name, "there", "gone", "made again", repairable=True)
                yield Finding(drift, partial(_make_seed, run, node))
            elif name.startswith(f"{run.lab}."):
                yield _told(node, name, "there", "gone", _lost(run, node))


def _lent(lab: str, node: NodePlan) -> set[str]:
    """The CDs that ``load`` and ``push`` put into a node's drive temporarily, in place of its payload CD."""
    return {f"{lab}.load-{node.os}.iso", f"{lab}.{node.name}.push.iso"}


def _make_seed(run: Run, node: NodePlan, progress: Progress) -> None:
    for step in systems.of(run, node).first_boot():
        if step.reaches.kind == SEED:
            step.run(progress)


def _attached(run: Run, node: NodePlan) -> list[str]:
    """The names of the pool's volumes with which the machine is started next."""
    host = run.on(node)
    xml = definitions.persistent(host.conn, node)
    disks = [] if xml is None else machine_xml.read(xml).disks.values()
    return [Path(disk.file).name for disk in disks if disk.file and Path(disk.file).parent == host.pool.folder]


def bases(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """The base volumes under the machines' disks: complete and, if requested, with their digest."""
    for host in subject.run.hosts(subject.nodes):
        yield from _bases(subject, host, progress)


def _bases(subject: Subject, host: Hypervisor, progress: Progress) -> Iterator[Finding]:
    pool = host.pool
    for name, nodes in sorted(_used(subject, host).items()):
        what = name if host.name == HYPERVISOR else f"{name} on {host.name}"
        held = pool.uploaded_digest(name)
        if not held and pool.exists(name) and not pool.is_complete(name):
            yield _unmarked(pool, name, what, nodes, progress)
            continue
        if not pool.is_complete(name):
            actual = "incomplete" if pool.exists(name) else "gone"
        elif subject.digests and held and pool.digest(name, partial(progress.say, f"reading {name}")) != held:
            actual = "other content"
        else:
            continue
        users = ", ".join(nodes)
        path = _same_content(held, progress) if held else None
        if path is None:
            action = f"no image in the cache has the content that it had; the disks of {users} are based on it"
            yield Finding(Drift("volume", "", what, "whole", actual, action, repairable=False))
            continue
        action = f"uploaded again from the cache; {users} must be restarted then"
        drift = Drift("volume", "", what, "whole", actual, action, repairable=True)
        yield Finding(drift, partial(_upload, pool, name, path))


def _unmarked(pool: StoragePool, name: str, what: str, users: list[str], progress: Progress) -> Finding:
    """A base volume without its marker, which may be whole. Its content decides, so all of it is read."""
    digest = pool.digest(name, partial(progress.say, f"reading {name}"))
    if any(image.sha256 == digest for image in cache.entries()):
        action = "written again: the volume has the content of an image in the cache"
        drift = Drift("volume", "", f"{what}: marker", "there", "gone", action, repairable=True)
        return Finding(drift, lambda _progress: pool.mark(name, digest))
    action = (
        f"whether the volume is whole is not known: no image in the cache has its content. The disks of "
        f"{', '.join(users)} are based on it; 'winlab node rebuild' makes a worker without it"
    )
    return Finding(Drift("volume", "", f"{what}: marker", "there", "gone", action, repairable=False))


def _used(subject: Subject, host: Hypervisor) -> dict[str, list[str]]:
    """The base volumes under disks, with the nodes that use each. Payload CDs are inspected with their drives."""
    pool, users = host.pool, dict[str, list[str]]()
    for node in subject.nodes:
        if node.hypervisor != host.name:
            continue
        for name in pool.names(f"{subject.run.lab}.{node.name}."):
            backing = pool.backing(name) if name.endswith(".qcow2") else None
            if backing is not None and backing.name.startswith(BASE):
                users.setdefault(backing.name, []).append(node.name)
    return users


def _same_content(sha256: str, progress: Progress) -> Path | None:
    """The cached image with this content, read whole; None if there is none."""
    for image in cache.entries():
        if image.sha256 == sha256:
            cache.verify(image, progress)
            return image.path
    return None


def _upload(pool: StoragePool, name: str, path: Path, progress: Progress) -> None:
    pool.restore_base(name, path, progress.say)
