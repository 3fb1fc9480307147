"""Golden images: Windows installed once per set of inputs, generalized by sysprep, and cloned by labs.

The key is a digest of all that decides what is in the image; what differs from clone to clone (name, address, password,
CPUs, memory) is not in it. Kubernetes' own programs are in the image only to save time: a clone compares them with its
payload CD.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from winlab import data
from winlab.design.catalog import recipes
from winlab.design.plan import addresses
from winlab.design.plan.model import GOLDEN, NodePlan, Plan, VolumePlan, WindowsPlan, identity
from winlab.errors import UsageError
from winlab.supply.images import golden, windows_media

WHOLE = 64 << 20  # bytes: larger files, which are media, are known by their size, begin and end
MACHINE = "golden"  # the name of the machine that is installed
# What a clone is told anew by its own answer file, or decided by the key in another way
OWN = {"computer_name", "golden", "media", "drivers", "openssh", "scripts", "files", "extra_drivers", "template"}


def key(node: NodePlan) -> str:
    """The 16 hex digits that name the golden image of a Windows node that is installed by itself."""
    return _digest(inputs(node))


def _digest(found: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def _made_elsewhere(node: NodePlan) -> str | None:
    """The key of the newest golden image in the cache that only its medium can tell from the one which the node would
    need, where no medium is given or in the cache; None if there is none, or a medium says which one it is."""
    assert node.windows is not None
    recipe = recipes.get(node.image)
    if recipe.build or recipe.download or windows_media.at_hand(recipe, node.windows.media) is not None:
        return None
    ours = inputs(node)
    for one in reversed(golden.entries()):
        if one.image.recipe.name == recipe.name and one.key == _digest({**ours, "medium": one.facts.get("medium")}):
            return one.key
    return None


def inputs(node: NodePlan) -> dict[str, Any]:
    """All that decides what is in the golden image; a product key is among it."""
    windows = node.windows
    assert windows is not None
    return {
        "image": node.image,
        "medium": node.volume("base").name,
        "machine": [node.firmware, node.bus, node.nic, node.disk_mib],
        "windows": windows.model_dump(mode="json", exclude=OWN),
        "files": {name: _identity(path) for name, path in files(windows)},
        "programs": programs(),
    }


def told(node: NodePlan) -> dict[str, Any]:
    """The inputs as the image's manifest tells them: of a product key only that there was one."""
    found = inputs(node)
    return {**found, "windows": {**found["windows"], "product_key": bool(found["windows"]["product_key"])}}


def files(windows: WindowsPlan) -> Iterator[tuple[str, Path]]:
    """The person's files that come into the image, by what they are. Those that are not there count by their names."""
    for name, path in (("drivers", windows.drivers), ("OpenSSH", windows.openssh), ("template", windows.template)):
        if path is not None:
            yield name, path
    for number, path in enumerate(windows.scripts):
        yield f"script {number}", path
    folders = [(f"extra_drivers {number}", folder) for number, folder in enumerate(windows.extra_drivers)]
    folders += [("files", windows.files)] if windows.files else []
    for name, folder in folders:
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if path.is_file():
                yield f"{name}/{path.relative_to(folder)}", path


def _identity(path: Path) -> str:
    if windows_media.is_ours(path):
        return path.parent.name  # its key; it may still have to be fetched
    if not path.is_file():
        return ""
    if path.stat().st_size > WHOLE:
        return identity(path)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise UsageError(f"'{path}' can't be read.", why=str(error)) from error


def programs() -> str:
    """A digest of winlab's own templates and scripts for Windows, which are in the image."""
    digest = hashlib.sha256()
    folder = data.folder("unattend") / "windows"
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def volume(node: NodePlan) -> str:
    """The name of the base volume of a clone's golden image."""
    assert node.windows is not None
    return base_volume(node.image, str(node.windows.golden))


def base_volume(image: str, key_: str) -> str:
    """The name of the base volume of the golden image of a recipe with this key."""
    return f"base-{image}-golden-{key_}.qcow2"


def key_of(volume: str) -> str | None:
    """The key of the golden image that a base volume holds; None if it holds something else."""
    found = re.fullmatch(r"base-.+-golden-([0-9a-f]{16})\.qcow2", volume)
    return found[1] if found else None


def clone(node: NodePlan) -> NodePlan:
    """The node as a clone of its golden image; Linux nodes stay as they are."""
    if node.windows is None:
        return node
    name = _made_elsewhere(node) or key(node)
    made = node.model_copy(update={"windows": node.windows.model_copy(update={"golden": name})})
    base, disk = volume(made), node.volume("disk")
    volumes = (
        VolumePlan(name=base, role="base", format="qcow2"),
        disk.model_copy(update={"backing": base}),
        node.volume("answer"),
    )
    return made.model_copy(update={"volumes": volumes})


def builder(plan: Plan, installed: Sequence[NodePlan]) -> Plan | None:
    """The plan of the lab with one machine in which the golden image of *plan*'s Windows nodes is made.

    :param installed: the Windows nodes as they would be installed by themselves.
    :returns: None where no node is a clone.
    """
    first = next((node for node in installed if node.windows is not None), None)
    cloned = next((node for node in plan.nodes if node.windows is not None and node.windows.golden), None)
    if first is None or cloned is None:
        return None
    assert first.windows is not None
    assert cloned.windows is not None
    lab = f"{GOLDEN}{str(cloned.windows.golden)[:8]}"
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
