"""Golden images: Windows installed once per set of inputs, generalized by sysprep, and cloned by labs. Pure.

The key is a digest of all that decides what is in the image; what differs from clone to clone (name, address, password,
CPUs, memory) is not in it. Kubernetes' own programs are in the image only to save time: a clone compares them with its
payload CD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from winlab.design.catalog import recipes
from winlab.design.plan import addresses
from winlab.design.plan.model import NodePlan, Plan, VolumePlan, WindowsNode, WindowsPlan, sha256_of
from winlab.design.plan.stock import Stock

LAB = "golden-"  # how the names of labs begin that make golden images
MACHINE = "golden"  # the name of the machine that is installed
# What a clone is told by its own answer file, or what the key covers in another way
OWN = {
    *("computer_name", "golden", "medium", "own_medium", "drivers", "own_drivers", "openssh"),
    *("scripts", "files", "extra_drivers", "template"),
}


def key(node: WindowsNode, stock: Stock) -> str:
    """The 16 hex digits that name the golden image of a Windows node that is installed by itself."""
    return sha256_of(inputs(node, stock))[:16]


def _made_elsewhere(node: WindowsNode, stock: Stock) -> str | None:
    """The key of the newest golden image in the cache that only its medium can tell from the one which the node would
    need, where no medium is given or in the cache; None if there is none, or a medium says which one it is."""
    recipe = recipes.get(node.image)
    if recipe.build or recipe.download or node.windows.own_medium or node.image in stock.media:
        return None
    ours = inputs(node, stock)
    for one in reversed(stock.golden):
        if one.image == node.image and one.key == sha256_of({**ours, "medium": one.medium})[:16]:
            return one.key
    return None


def inputs(node: WindowsNode, stock: Stock) -> dict[str, Any]:
    """All that decides what is in the golden image; a product key is among it."""
    windows = node.windows
    return {
        "image": node.image,
        "medium": node.volume("base").name,
        "machine": [node.firmware, node.bus, node.nic, node.disk_mib],
        "windows": windows.model_dump(mode="json", exclude=OWN),
        "files": dict(files(windows)),
        "template": windows.template and dict(windows.template.texts),
        "programs": stock.scripts,
    }


def told(node: WindowsNode, stock: Stock) -> dict[str, Any]:
    """The inputs as the image's manifest tells them: of a product key only that there was one."""
    found = inputs(node, stock)
    return {**found, "windows": {**found["windows"], "product_key": bool(found["windows"]["product_key"])}}


def files(windows: WindowsPlan) -> Iterator[tuple[str, str]]:
    """The files that come into the image, by what they are, each with its SHA-256; a template's text is elsewhere."""
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
    found = re.fullmatch(r"base-.+-golden-([0-9a-f]{16})\.qcow2", volume)
    return found[1] if found else None


def clone(node: NodePlan, stock: Stock) -> NodePlan:
    """The node as a clone of its golden image; Linux nodes stay as they are."""
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


def builder(plan: Plan, installed: Sequence[NodePlan]) -> Plan | None:
    """The plan of the lab with one machine in which the golden image of *plan*'s Windows nodes is made.

    :param installed: the Windows nodes as they would be installed by themselves.
    :returns: None where no node is a clone.
    """
    first = next((node for node in installed if isinstance(node, WindowsNode)), None)
    cloned = next(iter(plan.clones()), None)
    if first is None or cloned is None:
        return None
    lab = f"{LAB}{str(cloned.windows.golden)[:8]}"
    outside = addresses.external_block(plan.host.external_cidr, lab, 2, None)
    if outside[0] == plan.network.router_external:  # two names may lead to the same block
        outside = addresses.external_block(plan.host.external_cidr, f"{lab}-2", 2, None)
    cidr = plan.network.cidr
    node = first.model_copy(
        update={
            "name": MACHINE,
            "domain": f"winlab-{lab}-{MACHINE}",
            "uuid": addresses.make_uuid(lab, MACHINE),
            "mac": addresses.make_mac(lab, MACHINE),
            "port": addresses.make_uuid(lab, MACHINE, "port"),
            "address": addresses.inner(cidr, addresses.FIRST_WORKER),
            "floating": outside[1],
            "volumes": tuple(_renamed(one, plan.lab, first.name, lab) for one in first.volumes),
            "windows": first.windows.model_copy(update={"computer_name": MACHINE.upper()}),
        }
    )
    network = plan.network.model_copy(
        update={
            "switch": f"winlab-{lab}",
            "router": f"winlab-{lab}-router",
            "gateway_mac": addresses.make_mac(lab, "router", "inner"),
            "domain": plan.network.domain.replace(plan.lab, lab, 1),
            "router_external": outside[0],
            "router_external_mac": addresses.make_mac(lab, "router", "external"),
        }
    )
    return Plan(lab=lab, host=plan.host, network=network, cluster=plan.cluster, nodes=(node,))


def _renamed(volume_: VolumePlan, lab: str, name: str, other: str) -> VolumePlan:
    if volume_.role == "base":
        return volume_
    return volume_.model_copy(update={"name": volume_.name.replace(f"{lab}.{name}.", f"{other}.{MACHINE}.", 1)})
