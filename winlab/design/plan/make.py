"""Makes the plan: everything that will exist, before anything is touched. Pure: the same input, the same plan."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from winlab import settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan import addons, addresses, golden
from winlab.design.plan import cluster as clusters
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import LinuxNode, NetworkPlan, NodePlan, Plan, VolumePlan, WindowsNode, WindowsPlan
from winlab.design.plan.stock import Stock
from winlab.design.spec import pools
from winlab.design.spec.model import Controllers, Spec
from winlab.design.spec.pools import Pool
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.design.plan.existing import ForeignCluster

LAB_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")  # a domain's name stays under 64 characters
RESERVED = {"host", "external"}  # the host's own rows and switch; base volumes begin with "base-"
DNS_ZONE = "winlab.internal"  # ICANN reserved .internal for private use


def check_lab_name(lab: str, *, own: bool = False) -> str:
    """Return *lab* if it can be a lab's name.

    :param own: also accept the name of a lab in which winlab makes a golden image.
    :raises UsageError: it can't; the message says which names can.
    """
    if lab in RESERVED or lab.startswith("base-") or (lab.startswith(golden.LAB) and not own):
        raise UsageError(
            f"'{lab}' can't be the name of a lab.",
            why="winlab's own objects have that name.",
            cure="Choose another one.",
        )
    if not LAB_NAME.fullmatch(lab) or "--" in lab:
        raise UsageError(
            f"'{lab}' can't be the name of a lab.",
            cure="Use 1 to 24 lower-case letters, digits and single hyphens, beginning with a letter: 'lab', 'cni-2'.",
        )
    return lab


def check_prefix(prefix: str) -> str:
    """Return *prefix* if it can begin workers' names, before a number; Windows' names have at most 15 characters.

    :raises UsageError: they can't.
    """
    if prefix in ("controller", pools.LINUX_POOL) or not pools.NAME.fullmatch(prefix):
        raise UsageError(
            f"Nodes can't be called '{prefix}-1'.",
            cure="Use 1 to 12 lower-case letters, digits and hyphens, beginning with a letter: 'win'; not 'linux' or "
            "'controller', which other nodes are called.",
        )
    return prefix


def make(spec: Spec, lab: str, facts: HostFacts, stock: Stock, foreign: ForeignCluster | None = None) -> Plan:
    """Decide every name, address and size of the lab. Reads nothing: the same arguments give the same plan.

    :param stock: what is available for this spec (:func:`winlab.supply.images.stock.take`).
    :param foreign: a cluster made elsewhere that the workers are to join; the lab has no controllers then.
    :raises UsageError: the spec is impossible on this host (networks overlap, external network too small).
    """
    check_lab_name(lab)
    if foreign is not None:
        addons.require_none(spec.addons)
    if spec.network.mtu > 1500:
        raise UsageError(
            f"network.mtu {spec.network.mtu} is larger than the host's external bridge allows (1500).",
            cure="Leave it at 1500.",
        )
    controllers = range(1, spec.controllers.count + 1) if foreign is None else range(0)
    total = len(controllers) + sum(pool.count for pool in spec.pools)
    outside = addresses.external_block(facts.external_cidr, lab, total + 1, spec.network.floating_block)
    cidr, floating = spec.network.cidr, iter(outside[1:])
    nodes: list[NodePlan] = [
        _controller(spec.controllers, lab, one, cidr, next(floating), stock) for one in controllers
    ]
    installed: list[NodePlan] = []
    places = pools.places(spec.pools)
    for pool in spec.pools:
        for number, place in enumerate(places[pool.name][: pool.count], 1):
            node = _worker(pool, f"{pool.name}-{number}", lab, addresses.inner(cidr, place), next(floating), stock)
            installed.append(node)
            nodes.append(golden.clone(node, stock) if pool.golden else node)
    made = Plan(
        lab=lab,
        host=facts,
        network=NetworkPlan(
            switch=f"winlab-{lab}",
            router=f"winlab-{lab}-router",
            cidr=spec.network.cidr,
            gateway=addresses.inner(spec.network.cidr, 1),
            gateway_mac=addresses.make_mac(lab, "router", "inner"),
            domain=f"{lab}.{DNS_ZONE}",
            resolvers=spec.network.dns or tuple(facts.resolvers),
            mtu=spec.network.mtu,
            external_switch=settings.EXTERNAL_SWITCH,
            external_cidr=facts.external_cidr,
            external_gateway=facts.external_gateway,
            router_external=outside[0],
            router_external_mac=addresses.make_mac(lab, "router", "external"),
        ),
        cluster=clusters.decide(spec, nodes, outside[0], facts.external_cidr)
        if foreign is None
        else clusters.decide_joined(spec, nodes, facts.external_cidr, foreign),
        nodes=tuple(nodes),
    )
    chosen = addons.decide(spec.addons, made, made.cluster.versions.minor)
    return made.model_copy(update={"builders": golden.builders(made, installed), "addons": chosen})


def base_volume(recipe: Recipe, stock: Stock, medium: str = "") -> str:
    """The name of the volume that holds an image: by its key in the cache, or by its medium's content.

    :param medium: the SHA-256 of the installation medium, if it is known.
    """
    suffix = "qcow2" if recipe.format == "qcow2" else "iso"
    known = stock.images.get(recipe.name) or medium or "media-not-given"
    return f"base-{recipe.name}-{known[:16]}.{suffix}"


def _common(lab: str, name: str, address: str, floating: str) -> dict[str, str]:
    return {
        "name": name,
        "domain": f"winlab-{lab}-{name}",
        "uuid": addresses.make_uuid(lab, name),
        "mac": addresses.make_mac(lab, name),
        "port": addresses.make_uuid(lab, name, "port"),
        "address": address,
        "floating": floating,
        "hypervisor": "hypervisor-1",  # the only one, in this version
    }


def _linux_volumes(lab: str, name: str, recipe: Recipe, disk_mib: int, stock: Stock) -> tuple[VolumePlan, ...]:
    base = base_volume(recipe, stock)
    return (
        VolumePlan(name=base, role="base", format="qcow2"),
        VolumePlan(name=f"{lab}.{name}.disk.qcow2", role="disk", format="qcow2", backing=base, capacity_mib=disk_mib),
        VolumePlan(name=f"{lab}.{name}.seed.iso", role="seed", format="raw"),
    )


def _controller(row: Controllers, lab: str, number: int, cidr: str, floating: str, stock: Stock) -> LinuxNode:
    recipe = recipes.get(row.os)
    name = f"controller-{number}"
    return LinuxNode(
        **_common(lab, name, addresses.inner(cidr, addresses.FIRST_CONTROLLER + number - 1), floating),
        role="controller",
        image=recipe.name,
        user=recipe.user,
        cpus=row.cpus,
        memory_mib=row.memory,
        disk_mib=row.disk,
        bus="virtio-blk",
        nic="virtio",
        volumes=_linux_volumes(lab, name, recipe, row.disk, stock),
    )


def _worker(row: Pool, name: str, lab: str, address: str, floating: str, stock: Stock) -> NodePlan:
    recipe = recipes.get(row.os)
    memory = row.memory or recipe.memory_mib or 2048
    disk = row.disk or (recipe.disk_gib or 20) * 1024
    common = _common(lab, name, address, floating)
    if recipe.os == "linux":
        return LinuxNode(
            **common,
            role="worker",
            pool=row.name,
            image=recipe.name,
            user=recipe.user,
            cpus=row.cpus,
            memory_mib=memory,
            disk_mib=disk,
            bus="virtio-blk",
            nic="virtio",
            volumes=_linux_volumes(lab, name, recipe, disk, stock),
        )
    windows = _windows(row, recipe, name, stock)
    bus = row.bus or ("virtio-scsi" if windows.drivers or recipe.virtio_drivers else "sata")
    base = base_volume(recipe, stock, windows.medium)
    return WindowsNode(
        **common,
        role="worker",
        pool=row.name,
        image=recipe.name,
        user=recipe.user,
        cpus=row.cpus,
        memory_mib=memory,
        disk_mib=disk,
        firmware=row.firmware,
        bus=bus,
        nic="e1000e" if bus == "sata" else "virtio",
        volumes=(
            VolumePlan(name=base, role="base", format="raw"),
            VolumePlan(name=f"{lab}.{name}.disk.qcow2", role="disk", format="qcow2", capacity_mib=disk),
            VolumePlan(name=f"{lab}.{name}.media.qcow2", role="media", format="qcow2", backing=base),
            VolumePlan(name=f"{lab}.{name}.answer.iso", role="answer", format="raw"),
        ),
        windows=windows,
    )


def _windows(row: Pool, recipe: Recipe, name: str, stock: Stock) -> WindowsPlan:
    own = stock.content(row.media)
    evaluation = recipe.evaluations[0].sha256 if recipe.evaluations else None
    return WindowsPlan(
        computer_name=name.upper(),
        image_name=image_name(recipe, row.edition),
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
    )


def _default_drivers(row: Pool, recipe: Recipe, stock: Stock) -> str | None:
    """The catalog's virtio drivers if the spec names none.

    Not on SATA, nor for media with drivers of their own. A medium that the spec names may be used without internet
    access: it gets them only if the spec asks for a virtio bus.
    """
    if row.bus == "sata" or recipe.build is not None or (row.media is not None and row.bus is None):
        return None
    return stock.drivers


def image_name(recipe: Recipe, edition: str) -> str:
    """The NAME that the image of *edition* has in Microsoft's install.wim (the same since 2019).

    Source: wimlib's reading of evaluation media; NAME has no "Evaluation" in it even there.
    """
    family, shell = edition.split("-")
    return f"Windows Server {recipe.windows} SERVER{family.upper()}{'CORE' if shell == 'core' else ''}"
