"""The record of a snapshot that someone else wrote, made this account's own.

Nothing in it is believed. What winlab decides by names is decided again: domains, UUIDs, ports, volumes, the router,
and the external addresses of this host. All machines are on one hypervisor of this site: those of another one may have
the same names, and are other ones. What could lead to something else of this host is checked, or left out: paths,
programs, texts that other programs take for options.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from winlab import settings, snapshots
from winlab.adapters.kube import reduced
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design.plan import addresses, copied, volume_names
from winlab.design.plan.facts import HYPERVISOR, HostFacts
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.placement import CHOSEN
from winlab.design.spec.model import Spec
from winlab.errors import UsageError
from winlab.operations.snapshot.contents import WRITTEN
from winlab.snapshots import Drive, Id, SavedNode, Snapshot

NOWHERE = Path("/not-imported")  # where the paths of the spec lead: its files stayed where the snapshot was made
BASE = re.compile(r"base-[A-Za-z0-9][A-Za-z0-9._-]*")
CD = re.compile(r"base-[a-z0-9][a-z0-9.-]*\.iso")
TARGET = re.compile("[a-z]{2,4}")
WORD = re.compile("[a-z][a-z0-9-]*")
USER = re.compile("[A-Za-z_][A-Za-z0-9_.-]*")
MAC = re.compile("52:54:00(:[0-9a-f]{2}){3}")
ZONE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
TEXT = re.compile(r"(?!-)[^\x00-\x1f\x7f]*")
PINS = {"hypervisor", "apart"}
PLACES: dict[str, Any] = {"hypervisors": True, "controllers": PINS, "workers": {"__all__": PINS}, "linux_workers": PINS}
OWN = ("seed.iso", "answer.iso", "push.iso", "media.qcow2")


def adopt(given: Snapshot, which: Id, facts: HostFacts) -> Snapshot:
    """The record as this account's own.

    :param which: the lab and name that it gets.
    :param facts: of this site.
    :raises UsageError: its names can't be used, or it has something that winlab does not write.
    """
    check_lab_name(which.lab)
    snapshots.check_name(which.name)
    for why in _problems(given):
        raise UsageError(
            f"The snapshot '{given.id}' is refused.",
            why=why,
            cure="Export it again, with the same version of winlab. If it did not come from winlab, do not use it.",
        )
    origin = given.plan.model_copy(
        update={
            "host": facts,
            "network": given.plan.network.model_copy(
                update={
                    "external_switch": settings.EXTERNAL_SWITCH,
                    "external_cidr": facts.external_cidr,
                    "external_gateway": facts.external_gateway,
                }
            ),
            "nodes": tuple(node.model_copy(update={"hypervisor": HYPERVISOR}) for node in given.plan.nodes),
            "hosts": {},
            "placed": {},
            "kubernetes": given.plan.kubernetes and given.plan.kubernetes.model_copy(update={"source": None}),
        }
    )
    external = addresses.external_block(facts.external_cidr, which.lab, len(origin.nodes) + 1, None)
    (block,) = addresses.blocks(facts.external_cidr, external[:1])
    spec = Spec.model_validate(_without_paths(given.spec.model_dump(exclude_unset=True, exclude=PLACES)))
    return given.model_copy(
        update={
            "lab": which.lab,
            "name": which.name,
            "automatic": False,
            "nodes": {name: _node(node, name, which) for name, node in given.nodes.items()},
            "plan": copied.plan_of(origin, which.lab, block),
            "spec": copied.spec_of(spec, block),
            "roots": (),
            "kubectl": None,
        }
    )


def moved(snapshot: Snapshot, host: Hypervisor) -> Snapshot:
    """A record that was adopted, with all machines on another hypervisor than the first."""
    nodes = tuple(node.model_copy(update={"hypervisor": host.name}) for node in snapshot.plan.nodes)
    placed = {node.name: CHOSEN for node in nodes}
    plan = snapshot.plan.model_copy(update={"nodes": nodes, "hosts": {host.name: host.facts}, "placed": placed})
    return snapshot.model_copy(update={"plan": plan})


def _node(node: SavedNode, name: str, which: Id) -> SavedNode:
    drives = {
        target: drive.model_copy(update={"volume": _volume(which, name, target, drive)})
        for target, drive in node.drives.items()
    }
    return node.model_copy(update={"drives": drives})


def _volume(which: Id, node: str, target: str, drive: Drive) -> str:
    return which.volume(node, f"cd-{target}.qcow2") if drive.kind == "shared" else f"{which}.{drive.what}"


def _without_paths(value: Any) -> Any:
    """The same, with paths that lead nowhere: those of another host could lead to files of this one."""
    if isinstance(value, Path):
        return NOWHERE / (value.name.lstrip(".") or "folder")
    if isinstance(value, dict):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_without_paths(inner) for inner in value)
    return value


def _problems(given: Snapshot) -> Iterator[str]:
    plan = given.plan
    try:
        check_lab_name(given.lab)
        snapshots.check_name(given.name)
        if given.kubeconfig is not None:
            reduced.own_identity(given.kubeconfig)
        _check_addresses(given)
    except (UsageError, ValueError) as error:
        yield str(error)
    names = [node.name for node in plan.nodes]
    if plan.lab != given.lab or plan.golden is not None:
        yield f"Its plan is of another lab, '{plan.lab}'."
    if not names or len(set(names)) != len(names) or set(names) != given.nodes.keys():
        yield "Its nodes are not those of its plan."
    elif not set(names) <= given.credentials.nodes.keys():
        yield "It does not have the credentials of all of its nodes."
    elif given.kubeconfig is not None and plan.kubernetes is None:
        yield "It has a kubeconfig, and no cluster."
    else:
        for node in plan.nodes:
            yield from _node_problems(given, node)
    yield from _text_problems(plan)


def _check_addresses(given: Snapshot) -> None:
    """Check that addresses are some.

    :raises ValueError: one is not.
    """
    network, cluster = given.plan.network, given.plan.kubernetes
    for cidr in (network.cidr, *given.routes, *([cluster.pod_cidr, cluster.service_cidr] if cluster else [])):
        ipaddress.IPv4Network(cidr)
    for address in (network.gateway, *network.resolvers, *given.routes.values()):
        ipaddress.IPv4Address(address)
    for node in given.plan.nodes:
        ipaddress.IPv4Address(node.address)
    for mac in (network.gateway_mac, *(node.mac for node in given.plan.nodes)):
        if not MAC.fullmatch(mac):
            raise ValueError(f"The MAC {mac!r} is not one that winlab gives.")


def _node_problems(given: Snapshot, node: NodePlan) -> Iterator[str]:
    saved, lab = given.nodes[node.name], given.lab
    if not WORD.fullmatch(node.name) or not USER.fullmatch(node.user) or not USER.fullmatch(node.image):
        yield f"'{node.name}' is not the name of a node, or its user or image has no usual name."
        return
    if saved.memory_mib != node.memory_mib or (saved.split is None) == given.memory:
        yield f"'{node.name}' was not saved with the memory of its plan."
    if saved.sample is not None and not 0 <= saved.sample < node.memory_mib << 20:
        yield f"'{node.name}' has no memory at {saved.sample}."
    for volume in node.volumes:
        is_own = volume_names.lab_of(volume.name) == lab and volume.name.startswith(f"{lab}.{node.name}.")
        if not (BASE.fullmatch(volume.name) if volume.role == "base" else is_own):
            yield f"'{node.name}' has the volume '{volume.name}', which is not its own."
        if volume.backing is not None and not BASE.fullmatch(volume.backing):
            yield f"'{node.name}' has a volume over '{volume.backing}'."
    for target, drive in saved.drives.items():
        is_ours = drive.what in [f"{node.name}.{end}" for end in (WRITTEN if drive.kind == "disk" else OWN)]
        if not TARGET.fullmatch(target) or not (CD.fullmatch(drive.what) if drive.kind == "shared" else is_ours):
            yield f"The drive '{target}' of '{node.name}' has '{drive.what}', which winlab does not put there."
        elif drive.volume != _volume(given.id, node.name, target, drive):
            yield f"The drive '{target}' of '{node.name}' has the volume '{drive.volume}'."
    whats = [drive.what for drive in saved.drives.values() if drive.kind != "shared"]
    if len(set(whats)) != len(whats):
        yield f"Two drives of '{node.name}' have the same disk."


def _text_problems(plan: Plan) -> Iterator[str]:
    """Texts that programs or files would take for something else: options, more than one line, other zones."""
    if not ZONE.fullmatch(plan.network.domain):
        yield f"Its zone is {plan.network.domain!r}."
    for text in _texts(plan.model_dump(mode="json", exclude={"addons"})):
        if not TEXT.fullmatch(text):
            yield f"Its plan has the text {text[:100]!r}."


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in (*value, *value.values()):
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
