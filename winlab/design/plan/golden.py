"""Golden images: Windows installed once per set of inputs, generalized by sysprep, and cloned by labs. Pure.

The key is a digest of everything that decides the image's content. What differs between clones (name, address,
password, CPUs, memory) is not part of it. Kubernetes' own programs are in the image only to save time: a clone compares
them with its payload CD. An image for machines beside the cluster does without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from winlab.design.catalog import recipes
from winlab.design.plan import addresses
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.lab_name import GOLDEN
from winlab.design.plan.model import Plan, sha256_of
from winlab.design.plan.node_plan import NodePlan, VolumePlan, WindowsNode, WindowsPlan
from winlab.design.plan.stock import Stock
from winlab.design.spec.pools import FIRST_PLACES
from winlab.errors import UsageError

MACHINE = "golden"  # the name of the machine that is installed
PLACE = FIRST_PLACES[0]  # its place in the network
# What a clone gets from its own answer file, or what the key covers in another way
OWN = {
    *("computer_name", "golden", "medium", "own_medium", "drivers", "own_drivers", "openssh"),
    *("scripts", "files", "extra_drivers", "template", "tainted"),
}


def key(node: WindowsNode, stock: Stock) -> str:
    """The 16 hex digits that name the golden image of a Windows node, which is planned without one."""
    return sha256_of(inputs(node, stock))[:16]


def _made_elsewhere(node: WindowsNode, stock: Stock) -> str | None:
    """The key of the newest cached golden image that would suit the node, if no medium is given or cached.

    The medium is then the only possible difference. None if there is no such image, or if the medium is known.
    """
    recipe = recipes.get(node.image)
    if recipe.build or recipe.download or node.windows.own_medium or node.image in stock.media:
        return None
    ours = inputs(node, stock)
    for cached in reversed(stock.golden):
        if cached.image == node.image and cached.key == sha256_of({**ours, "medium": cached.medium})[:16]:
            return cached.key
    return None


def inputs(node: WindowsNode, stock: Stock) -> dict[str, Any]:
    """Everything that decides the content of the golden image, a product key included."""
    windows = node.windows
    return {
        "image": node.image,
        "medium": node.volume("base").name,
        "machine": [node.firmware, node.bus, node.nic, node.disk_mib],
        "windows": windows.model_dump(mode="json", exclude=OWN),
        "files": dict(files(windows)),
        "template": windows.template and dict(windows.template.texts),
        "programs": stock.scripts,
        # without Kubernetes' programs and the features that they need
        **({} if node.is_member else {"beside": True}),
    }


def told(node: WindowsNode, stock: Stock) -> dict[str, Any]:
    """The inputs as the image's manifest has them; it records only that there was a product key."""
    given = inputs(node, stock)
    return {**given, "windows": {**given["windows"], "product_key": bool(given["windows"]["product_key"])}}


def files(windows: WindowsPlan) -> Iterator[tuple[str, str]]:
    """The files that go into the image, by their purpose, each with its SHA-256; without a template's text."""
    for name, sha256 in (("drivers", windows.drivers), ("OpenSSH", windows.openssh)):
        if sha256 is not None:
            yield name, sha256
    for number, material in enumerate(windows.scripts):
        yield f"script {number}", material.sha256
    for number, folder in enumerate(windows.extra_drivers):
        for material in folder:
            yield f"extra_drivers {number}/{material.name}", material.sha256
    for material in windows.files:
        yield f"files/{material.name}", material.sha256


def base_volume(image: str, key_: str) -> str:
    """The name of the base volume of the golden image of a recipe with this key."""
    return f"base-{image}-golden-{key_}.qcow2"


def key_of(volume: str) -> str | None:
    """The key of the golden image that a base volume holds; None if it holds something else."""
    match = re.fullmatch(r"base-.+-golden-([0-9a-f]{16})\.qcow2", volume)
    return match[1] if match else None


def clone(node: NodePlan, stock: Stock) -> NodePlan:
    """The node as a clone of its golden image; Linux nodes are unchanged."""
    if not isinstance(node, WindowsNode):
        return node
    name = _made_elsewhere(node, stock) or key(node, stock)
    base, disk = base_volume(node.image, name), node.volume("disk")
    volumes = (
        VolumePlan(name=base, role="base", format="qcow2"),
        disk.model_copy(update={"backing": base}),
        node.volume("answer"),
    )
    return node.changed(golden=name).model_copy(update={"volumes": volumes})


def builders(plan: Plan, installed: Sequence[NodePlan]) -> tuple[Plan, ...]:
    """The plans of the labs that make the golden images of *plan*'s Windows nodes, one for each image.

    Each has one machine. They share neither names nor external addresses with each other or with *plan*.

    :param installed: the plan's workers as they would be installed without golden images.
    """
    by_name = {node.name: node for node in installed if isinstance(node, WindowsNode)}
    plans: dict[str, Plan] = {}
    taken = set(plan.external_addresses)
    for clone_ in plan.clones():
        name = str(clone_.windows.golden)
        if name in plans:
            continue
        lab = _lab(by_name[clone_.name].windows.release, name, {other.lab for other in plans.values()})
        outside = _outside(plan, lab, taken)
        taken.update(outside)
        plans[name] = _builder(plan, by_name[clone_.name], lab, outside, name)
    return tuple(plans.values())


def _lab(release: str, key_: str, others: set[str]) -> str:
    """The name of the lab that makes the image with this key: as short as possible, but unlike *others*."""
    return next(name for digits in range(8, 17) if (name := f"{GOLDEN}{release}-{key_[:digits]}") not in others)


def _outside(plan: Plan, lab: str, taken: set[str]) -> list[str]:
    """External addresses for a builder's router and machine. Several names may map to the same block."""
    for number in range(1, 100):
        name = lab if number == 1 else f"{lab}-{number}"
        block = addresses.external_block(plan.site.external_cidr, name, 2, None)
        if taken.isdisjoint(block):
            return block
    raise UsageError(
        f"The external network {plan.site.external_cidr} is too small for the lab and the machines that make its "
        "golden images.",
        cure="Run 'winlab host setup --external-cidr' with a larger one, or set workers.golden=false.",
    )


def elsewhere(plan: Plan, builder: Plan) -> Iterator[Plan]:
    """A builder of *plan* with its external addresses, then with those of each further block that *plan* leaves free.

    A lab chooses its block by ``network.floating_block``; for a builder, no one can.
    """
    yield builder
    cidr = plan.site.external_cidr
    others = (plan, *(one for one in plan.builders if one.lab != builder.lab))
    used = addresses.blocks(cidr, (address for one in others for address in one.external_addresses))
    (first,) = addresses.blocks(cidr, builder.external_addresses)
    last = addresses.last_block(cidr)
    for number in (*range(first + 1, last + 1), *range(1, first)):
        if number not in used:
            router, floating = addresses.external_block(cidr, builder.lab, 2, number)
            network = builder.network.model_copy(update={"router_external": router})
            (node,) = builder.nodes
            moved = node.model_copy(update={"floating": floating})
            yield builder.model_copy(update={"network": network, "nodes": (moved,)})


def _builder(plan: Plan, first: WindowsNode, lab: str, outside: list[str], key_: str) -> Plan:
    cidr = plan.network.cidr
    node = first.model_copy(
        update={
            "name": MACHINE,
            "pool": "",
            "hypervisor": HYPERVISOR,  # wherever the clones are: a build that is interrupted is found there
            "domain": addresses.domain(lab, MACHINE),
            "uuid": addresses.make_uuid(lab, MACHINE),
            "mac": addresses.make_mac(lab, MACHINE),
            "port": addresses.make_uuid(lab, MACHINE, "port"),
            "address": addresses.inner(cidr, PLACE),
            "floating": outside[1],
            "volumes": tuple(_renamed(volume, plan.lab, first.name, lab) for volume in first.volumes),
            "windows": first.windows.model_copy(update={"computer_name": MACHINE.upper()}),
        }
    )
    network = plan.network.model_copy(
        update={
            "switch": f"winlab-{lab}",
            "router": f"winlab-{lab}-router",
            "gateway_mac": addresses.make_mac(lab, "router", "inner"),
            "domain": addresses.zone(lab),
            "router_external": outside[0],
            "router_external_mac": addresses.router_mac(lab, plan.network.reach),
        }
    )
    hosts = {name: facts for name, facts in plan.hosts.items() if name == node.hypervisor}
    return Plan(
        lab=lab, host=plan.host, network=network, cluster=plan.kubernetes, nodes=(node,), golden=key_, hosts=hosts
    )


def _renamed(volume_: VolumePlan, lab: str, name: str, other: str) -> VolumePlan:
    if volume_.role == "base":
        return volume_
    return volume_.model_copy(update={"name": volume_.name.replace(f"{lab}.{name}.", f"{other}.{MACHINE}.", 1)})
