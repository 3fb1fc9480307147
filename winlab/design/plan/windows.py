"""Windows nodes in the plan. Pure."""

from __future__ import annotations

from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.machine import Place, base_volume
from winlab.design.plan.node_plan import VolumePlan, WindowsNode, WindowsPlan
from winlab.design.plan.stock import Stock
from winlab.design.spec.pools import Pool


def worker(row: Pool, recipe: Recipe, place: Place, stock: Stock, *, memory: int, disk: int) -> WindowsNode:
    """A worker with *memory* and *disk* in MiB, installed from its medium."""
    windows = _windows(row, recipe, place.name, stock)
    bus = row.bus or ("virtio-scsi" if windows.drivers or recipe.virtio_drivers else "sata")
    base = base_volume(recipe, stock, windows.medium)
    return WindowsNode(
        **place.fields(),
        role="worker" if row.cluster else "machine",
        pool=row.name,
        image=recipe.name,
        user=recipe.user,
        cpus=row.cpus,
        memory_mib=memory,
        disk_mib=disk,
        firmware=row.firmware,
        bus=bus,
        nic=row.nic or ("e1000e" if bus == "sata" else "virtio"),
        volumes=(
            VolumePlan(name=base, role="base", format="raw"),
            VolumePlan(name=place.volume("disk.qcow2"), role="disk", format="qcow2", capacity_mib=disk),
            VolumePlan(name=place.volume("media.qcow2"), role="media", format="qcow2", backing=base),
            VolumePlan(name=place.volume("answer.iso"), role="answer", format="raw"),
        ),
        windows=windows,
    )


def _windows(row: Pool, recipe: Recipe, name: str, stock: Stock) -> WindowsPlan:
    own = stock.content(row.media)
    evaluation = recipe.evaluations[0].sha256 if recipe.evaluations else None
    return WindowsPlan(
        computer_name=name.upper(),
        image_name=row.image or image_name(recipe, row.edition),
        product_key=row.product_key,
        time_zone=row.time_zone,
        language=row.language,
        locale=row.locale,
        keyboard=row.keyboard,
        release=recipe.windows or "2022",
        medium=own or stock.media.get(recipe.name) or evaluation or "",
        own_medium=own is not None,
        drivers=stock.content(row.drivers) or _default_drivers(row, recipe, stock),
        own_drivers=row.drivers is not None,
        openssh=stock.content(row.openssh),
        scripts=tuple(stock.files[path][0] for path in row.scripts),
        files=stock.folder(row.files),
        extra_drivers=tuple(stock.folder(path) for path in row.extra_drivers),
        template=stock.templates[row.template] if row.template else None,
        updates=row.updates,
        tainted=row.taint != "none",
    )


def _default_drivers(row: Pool, recipe: Recipe, stock: Stock) -> str | None:
    """The catalog's virtio drivers if the spec names none.

    Not on SATA, nor for media with drivers of their own. A medium that the spec names may be used without internet
    access: it gets them only if the spec asks for a virtio bus or NIC.
    """
    asked = row.nic == "virtio" or row.bus not in (None, "sata")
    if recipe.build is not None or (not asked and (row.bus == "sata" or row.media is not None)):
        return None
    return stock.drivers


def image_name(recipe: Recipe, edition: str) -> str:
    """The NAME that the image of *edition* has in Microsoft's install.wim (the same since 2019).

    Source: wimlib's reading of evaluation media; NAME has no "Evaluation" in it even there.
    """
    family, shell = edition.split("-")
    return f"Windows Server {recipe.windows} SERVER{family.upper()}{'CORE' if shell == 'core' else ''}"
