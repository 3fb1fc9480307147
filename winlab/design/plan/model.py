"""The plan: everything that will exist, decided before anything is touched. Pure, and the same for the same input."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from winlab import settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan import addresses
from winlab.design.plan import cluster as clusters
from winlab.design.plan.cluster import ClusterPlan
from winlab.design.plan.facts import HostFacts
from winlab.design.spec.model import Controllers, Spec
from winlab.design.spec.pools import LinuxWorkers, Pool
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.design.plan.existing import ForeignCluster

LAB_NAME = re.compile(r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?")  # a domain's name stays under 64 characters
PREFIX = re.compile(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?")
WORKER = "node"  # what workers are called, with a number behind it
RESERVED = {"host", "external"}  # of the host's own rows and switch; base volumes begin with "base-"
GOLDEN = "golden-"  # of the labs that make golden images
DNS_ZONE = "winlab.internal"  # ICANN reserved .internal for private use


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class VolumePlan(_Model):
    """A storage volume. ``backing`` is the volume under it; ``capacity_mib`` is None where the content decides."""

    name: str
    role: Literal["disk", "seed", "answer", "media", "base"]
    format: Literal["qcow2", "raw"]
    backing: str | None = None
    capacity_mib: int | None = None


class WindowsPlan(_Model):
    """What only a Windows node has."""

    computer_name: str
    image_name: str
    product_key: str | None
    time_zone: str
    language: str
    locale: str
    keyboard: str
    media: Path | None
    drivers: Path | None
    openssh: Path | None
    release: str
    scripts: tuple[Path, ...] = ()
    files: Path | None = None
    extra_drivers: tuple[Path, ...] = ()
    template: Path | None = None
    updates: bool = False
    golden: str | None = None  # the key of the golden image that the node is a clone of


class NodePlan(_Model):
    """One machine."""

    name: str
    role: Literal["controller", "worker"]
    os: Literal["linux", "windows"]
    image: str
    user: str
    domain: str
    uuid: str
    mac: str
    port: str
    address: str
    floating: str
    hypervisor: str
    cpus: int
    memory_mib: int
    disk_mib: int
    firmware: Literal["uefi", "bios"] = "uefi"
    bus: Literal["virtio-scsi", "virtio-blk", "sata"]
    nic: Literal["virtio", "e1000e"]
    volumes: tuple[VolumePlan, ...]
    windows: WindowsPlan | None = None

    def has(self, role: str) -> bool:
        """Whether the node has a volume with this role."""
        return any(volume.role == role for volume in self.volumes)

    def volume(self, role: str) -> VolumePlan:
        """The node's volume with this role; ValueError if it has none."""
        for volume in self.volumes:
            if volume.role == role:
                return volume
        raise ValueError(f"{self.name} has no {role} volume")

    def without_bases(self) -> NodePlan:
        """The node with its base volumes left out, for comparing; of a golden image only counts that there is one."""
        own = tuple(v.model_copy(update={"backing": None}) for v in self.volumes if v.role != "base")
        windows = self.windows
        if windows is not None and windows.golden is not None:
            windows = windows.model_copy(update={"golden": "some"})
        return self.model_copy(update={"volumes": own, "windows": windows})

    def without_secrets(self) -> NodePlan:
        """The node with a mark in place of its product key."""
        if self.windows is None or self.windows.product_key is None:
            return self
        masked = self.windows.model_copy(update={"product_key": "<product key>"})
        return self.model_copy(update={"windows": masked})


class NetworkPlan(_Model):
    """The lab's switch and router, and their leg outside."""

    switch: str
    router: str
    cidr: str
    gateway: str
    gateway_mac: str
    domain: str
    resolvers: tuple[str, ...]
    mtu: int
    external_switch: str
    external_cidr: str
    external_gateway: str
    router_external: str
    router_external_mac: str


class Plan(_Model):
    """A whole lab, decided."""

    lab: str
    host: HostFacts
    network: NetworkPlan
    cluster: ClusterPlan
    nodes: tuple[NodePlan, ...]
    builder: Plan | None = None  # the lab that makes the golden image of the Windows nodes, where there is none yet

    @property
    def digest(self) -> str:
        """Identifies the plan: 16 hex digits of the SHA-256 over its JSON.

        What may change while a lab stands doesn't count, so that it can be carried on: names of base volumes (a newer
        winlab makes newer images), the host's abilities (found anew at every boot), its resolvers.
        """
        kept = self.model_copy(update={"nodes": tuple(node.without_bases() for node in self.nodes)})
        text = kept.model_dump_json(exclude={"host": True, "network": {"resolvers"}, "builder": True})
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def joins(self) -> bool:
        """Whether these are workers alone, for a cluster made elsewhere."""
        return all(node.role == "worker" for node in self.nodes)

    @property
    def alias(self) -> tuple[str, str] | None:
        """The name of the API server of a cluster made elsewhere and the address it leads to, if the person said it."""
        name, address = (where.rpartition(":")[0] for where in (self.cluster.endpoint, self.cluster.external))
        return (name, address) if self.joins and name != address else None

    def without_secrets(self) -> Plan:
        """The plan as it may be shown: marks in place of product keys."""
        builder = self.builder and self.builder.without_secrets()
        return self.model_copy(
            update={"nodes": tuple(node.without_secrets() for node in self.nodes), "builder": builder}
        )

    def node(self, name: str) -> NodePlan:
        """The node *name*; KeyError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


def check_lab_name(lab: str, *, own: bool = False) -> str:
    """Return *lab* if it can be a lab's name.

    :param own: also if it is the name of a lab in which winlab makes a golden image.
    :raises UsageError: it can't; the message says which can.
    """
    if lab in RESERVED or lab.startswith("base-") or (lab.startswith(GOLDEN) and not own):
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
    """Return *prefix* if workers can be called so, with a number behind it; Windows' names have at most 15 characters.

    :raises UsageError: they can't.
    """
    if prefix in ("controller", "linux") or not PREFIX.fullmatch(prefix):
        raise UsageError(
            f"Nodes can't be called '{prefix}-1'.",
            cure="Use 1 to 12 lower-case letters, digits and hyphens, beginning with a letter: 'win'; not 'linux' or "
            "'controller', which other nodes are called.",
        )
    return prefix


def make(spec: Spec, lab: str, facts: HostFacts, foreign: ForeignCluster | None = None, prefix: str = WORKER) -> Plan:
    """Decide every name, address and size of the lab.

    :param foreign: a cluster made elsewhere that the workers are to join; the lab has no controllers then.
    :param prefix: what the workers are called, with a number behind it.
    :raises UsageError: the spec can't be had on this host (networks overlap, external network too small).
    """
    from winlab.design.plan import golden

    check_lab_name(lab)
    if spec.network.mtu > 1500:
        raise UsageError(
            f"network.mtu {spec.network.mtu} is larger than the host's external bridge allows (1500).",
            cure="Leave it at 1500.",
        )
    check_prefix(prefix)
    controllers = _count(spec.controllers) if foreign is None else range(0)
    total = len(controllers) + spec.workers[0].count + spec.linux_workers.count
    outside = addresses.external_block(facts.external_cidr, lab, total + 1, spec.network.floating_block)
    cidr, floating = spec.network.cidr, iter(outside[1:])
    nodes = [_linux(spec.controllers, lab, number, cidr, next(floating)) for number in controllers]
    workers = [
        _worker(spec.workers[0], lab, number, cidr, next(floating), prefix) for number in _count(spec.workers[0])
    ]
    nodes += [golden.clone(node) for node in workers] if spec.workers[0].golden else workers
    nodes += [_linux(spec.linux_workers, lab, number, cidr, next(floating)) for number in _count(spec.linux_workers)]
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
    return made.model_copy(update={"builder": golden.builder(made, workers)})


def _count(group: Controllers | Pool | LinuxWorkers) -> range:
    return range(1, group.count + 1)


def base_volume(recipe: Recipe, media: Path | None) -> str:
    """The name of the volume that holds an image: by its recipe's key, or by a local medium's identity."""
    from winlab.supply.images import cache, windows_media

    suffix = "qcow2" if recipe.format == "qcow2" else "iso"
    if media is not None:
        return f"base-media-{identity(media)}.{suffix}"
    if recipe.download is None and recipe.build is None:
        return f"base-{recipe.name}-{(windows_media.chosen(recipe) or 'media-not-given')[:16]}.{suffix}"
    return f"base-{recipe.name}-{cache.key(recipe)[:16]}.{suffix}"


def identity(path: Path) -> str:
    """A quick fingerprint of a large file: its size, its first and its last mebibyte.

    :raises UsageError: it can't be read.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            digest = hashlib.sha256(f"{size}:".encode() + file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            digest.update(file.read(1 << 20))
    except OSError as error:
        raise UsageError(f"The medium '{path}' can't be read.", why=str(error)) from error
    return digest.hexdigest()[:16]


def _common(lab: str, name: str, cidr: str, offset: int, floating: str) -> dict[str, str]:
    return {
        "name": name,
        "domain": f"winlab-{lab}-{name}",
        "uuid": addresses.make_uuid(lab, name),
        "mac": addresses.make_mac(lab, name),
        "port": addresses.make_uuid(lab, name, "port"),
        "address": addresses.inner(cidr, offset),
        "floating": floating,
        "hypervisor": "hypervisor-1",  # the only one, in this version
    }


def _linux_volumes(lab: str, name: str, recipe: Recipe, disk_mib: int) -> tuple[VolumePlan, ...]:
    base = base_volume(recipe, None)
    return (
        VolumePlan(name=base, role="base", format="qcow2"),
        VolumePlan(name=f"{lab}.{name}.disk.qcow2", role="disk", format="qcow2", backing=base, capacity_mib=disk_mib),
        VolumePlan(name=f"{lab}.{name}.seed.iso", role="seed", format="raw"),
    )


def _linux(row: Controllers | LinuxWorkers, lab: str, number: int, cidr: str, floating: str) -> NodePlan:
    recipe = recipes.get(row.os)
    controller = isinstance(row, Controllers)
    name = f"controller-{number}" if controller else f"linux-{number}"
    first = addresses.FIRST_CONTROLLER if controller else addresses.FIRST_LINUX
    return NodePlan.model_validate(
        {
            **_common(lab, name, cidr, first + number - 1, floating),
            "role": "controller" if controller else "worker",
            "os": "linux",
            "image": recipe.name,
            "user": recipe.user,
            "cpus": row.cpus,
            "memory_mib": row.memory,
            "disk_mib": row.disk,
            "bus": "virtio-blk",
            "nic": "virtio",
            "volumes": _linux_volumes(lab, name, recipe, row.disk),
        }
    )


def _worker(row: Pool, lab: str, number: int, cidr: str, floating: str, prefix: str) -> NodePlan:
    recipe = recipes.get(row.os)
    name = f"{prefix}-{number}"
    memory = row.memory or recipe.memory_mib or 2048
    disk = row.disk or (recipe.disk_gib or 20) * 1024
    common = {
        **_common(lab, name, cidr, addresses.FIRST_WORKER + number - 1, floating),
        "role": "worker",
        "os": recipe.os,
        "image": recipe.name,
        "user": recipe.user,
        "cpus": row.cpus,
        "memory_mib": memory,
        "disk_mib": disk,
    }
    if recipe.os == "linux":
        return NodePlan.model_validate(
            {**common, "bus": "virtio-blk", "nic": "virtio", "volumes": _linux_volumes(lab, name, recipe, disk)}
        )
    bus = row.bus or ("virtio-scsi" if row.drivers or recipe.virtio_drivers else "sata")
    if bus != "sata" and not (row.drivers or recipe.virtio_drivers):
        raise UsageError(
            f"workers.bus {bus} needs drivers that the Windows media don't carry.",
            cure="Give the virtio-win ISO with --set workers.drivers=PATH, or take --set workers.bus=sata.",
        )
    base = base_volume(recipe, row.media)
    return NodePlan.model_validate(
        {
            **common,
            "firmware": row.firmware,
            "bus": bus,
            "nic": "e1000e" if bus == "sata" else "virtio",
            "volumes": (
                VolumePlan(name=base, role="base", format="raw"),
                VolumePlan(name=f"{lab}.{name}.disk.qcow2", role="disk", format="qcow2", capacity_mib=disk),
                VolumePlan(name=f"{lab}.{name}.media.qcow2", role="media", format="qcow2", backing=base),
                VolumePlan(name=f"{lab}.{name}.answer.iso", role="answer", format="raw"),
            ),
            "windows": WindowsPlan(
                computer_name=name.upper(),
                image_name=image_name(recipe, row.edition),
                release=recipe.windows or "2022",
                **row.model_dump(include=(set(WindowsPlan.model_fields) & set(Pool.model_fields)) - {"golden"}),
            ),
        }
    )


def image_name(recipe: Recipe, edition: str) -> str:
    """The NAME that the image of *edition* has in Microsoft's install.wim (the same since 2019).

    Source: wimlib's reading of evaluation media; NAME has no "Evaluation" in it even there.
    """
    family, shell = edition.split("-")
    return f"Windows Server {recipe.windows} SERVER{family.upper()}{'CORE' if shell == 'core' else ''}"
