"""Which volume a machine's disk is now, which volumes something depends on, and the removal of those that nothing does.

A plan names a machine's disk, but the disk may be of a later generation (:mod:`winlab.design.plan.volume_names`). The
earlier ones are then *frozen*: other volumes are based on them, so nothing may write to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import PurePath

from winlab.adapters.vm import definitions, domains, machine_xml
from winlab.adapters.vm.domains import Named
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import volume_names
from winlab.design.plan.node_plan import NodePlan, VolumePlan


def live(host: Hypervisor, node: NodePlan) -> VolumePlan:
    """The node's disk as planned, with the name that it has now: see :func:`current`."""
    disk = node.volume("disk")
    return disk.model_copy(update={"name": current(host, node, disk.name)})


def current(host: Hypervisor, machine: Named, planned: str) -> str:
    """The name of the volume that a machine's disk or store is now, or that it would be made as.

    The definition of its domain decides, even if that has a user's own overlay on the volume. If there is none, or it
    has no such disk, it is the newest generation that is not frozen. If all are, it is the next one, which does not
    exist yet.

    :param planned: its first generation's name.
    """
    for name in _attached(host, machine):
        if volume_names.first(name) == planned:
            return name
    made = _generations(host.pool, planned)
    if not made:
        return planned
    host.pool.refresh()  # libvirt does not notice by itself what was made over them
    kept = frozen(host.pool)
    return next((name for name in reversed(made) if name not in kept), next_free(host.pool, planned))


def _attached(host: Hypervisor, machine: Named) -> Iterator[str]:
    """The volumes with which a machine's disks start next, each followed by those under it."""
    xml = definitions.persistent(host.conn, machine)
    if xml is None:
        return
    for disk in machine_xml.read(xml).disks.values():
        file = PurePath(disk.file)
        if disk.device == "disk" and file.parent == host.pool.folder:
            yield from chain(host.pool, file.name)


def chain(pool: StoragePool, name: str) -> Iterator[str]:
    """A volume and those of the pool under it, from above. The last one may be missing."""
    yield name
    while pool.exists(name) and (base := pool.backing(name)) is not None and base.parent == pool.folder:
        name = base.name
        yield name


def next_free(pool: StoragePool, planned: str) -> str:
    """The name of the next generation of a disk or store: later than all that exist. Refresh the pool first.

    :param planned: its first generation's name.
    """
    newest = max(map(volume_names.generation, _generations(pool, planned)), default=0)
    return volume_names.of_generation(planned, newest + 1)


def _generations(pool: StoragePool, planned: str) -> list[str]:
    """Those that exist, the oldest first."""
    named = pool.names(planned.removesuffix(".qcow2"))
    return sorted((one for one in named if volume_names.first(one) == planned), key=volume_names.generation)


def of_lab(pool: StoragePool, lab: str) -> list[str]:
    """A lab's disks and stores, of all generations, sorted by their names."""
    return [name for name in pool.names(f"{lab}.") if volume_names.generation(name)]


def frozen(pool: StoragePool) -> set[str]:
    """The names of the volumes that others are based on."""
    return {base.name for base in pool.backings().values()}


def collect(host: Hypervisor, names: Iterable[str]) -> list[str]:
    """Delete those of some volumes of labs that nothing depends on, and what :func:`unused` adds to them.

    :returns: the names of those that were deleted.
    """
    host.pool.refresh()
    return [name for name in unused(host, names) if host.pool.delete(name)]


def unused(host: Hypervisor, names: Iterable[str], without: Collection[str] = ()) -> list[str]:
    """Those of some volumes of labs that nothing depends on, bases before their overlays.

    No other volume is based on them, and no domain has them, not even a user's own. Added are the labs' disks under
    them, if nothing else depends on those either. Refresh the pool first.

    If they are deleted in this order, and winlab is killed meanwhile, those that are left lead to the rest.
    """
    there = set(host.pool.names())
    left, found = {name for name in names if volume_names.is_made(name) and name in there}, list[str]()
    if not left:
        return found
    # by names, not by paths: a user's overlay may name its base through a link
    bases = {name: base.name for name, base in host.pool.backings().items() if name not in without}
    held = {PurePath(file).name for file in domains.files(host.conn)}
    while leaf := next((name for name in sorted(left - held, reverse=True) if name not in bases.values()), None):
        left.remove(leaf)
        found.append(leaf)
        if volume_names.generation(base := bases.pop(leaf, "")) and base in there:
            left.add(base)
    return found[::-1]
