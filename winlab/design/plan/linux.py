"""Linux nodes in the plan. Pure."""

from __future__ import annotations

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.machine import Place, base_volume
from winlab.design.plan.node_plan import LinuxNode, VolumePlan
from winlab.design.plan.stock import Stock
from winlab.design.spec.model import Controllers
from winlab.design.spec.pools import Pool


def controller(row: Controllers, place: Place, stock: Stock) -> LinuxNode:
    """A controller."""
    recipe = recipes.get(row.os)
    return LinuxNode(
        **place.fields(),
        role="controller",
        image=recipe.name,
        user=recipe.user,
        cpus=row.cpus,
        memory_mib=row.memory,
        disk_mib=row.disk,
        bus="virtio-blk",
        nic="virtio",
        volumes=_volumes(place, recipe, row.disk, stock),
    )


def worker(row: Pool, recipe: Recipe, place: Place, stock: Stock, *, memory: int, disk: int) -> LinuxNode:
    """A worker with *memory* and *disk* in MiB."""
    return LinuxNode(
        **place.fields(),
        role="worker" if row.cluster else "machine",
        pool=row.name,
        image=recipe.name,
        user=recipe.user,
        cpus=row.cpus,
        memory_mib=memory,
        disk_mib=disk,
        bus="virtio-blk",
        nic="virtio",
        volumes=_volumes(place, recipe, disk, stock),
    )


def _volumes(place: Place, recipe: Recipe, disk_mib: int, stock: Stock) -> tuple[VolumePlan, ...]:
    base = base_volume(recipe, stock)
    return (
        VolumePlan(name=base, role="base", format="qcow2"),
        VolumePlan(name=place.volume("disk.qcow2"), role="disk", format="qcow2", backing=base, capacity_mib=disk_mib),
        VolumePlan(name=place.volume("seed.iso"), role="seed", format="raw"),
    )
