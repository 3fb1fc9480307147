"""The plan of a copy of a lab. Pure.

It equals what :func:`winlab.design.plan.make.make` decides for the origin's spec and :meth:`Plan.as_kept`. But it needs
neither the images nor the media that the origin was made from: a copy has the origin's disks. It has no builders.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from winlab.design.plan import addresses
from winlab.design.plan.cluster import API_PORT
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan, VolumePlan
from winlab.design.plan.placement import RECORDED, Placement
from winlab.design.spec.hosts import Group
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import LINUX_POOL
from winlab.errors import ConflictError, UsageError


def spec_of(spec: Spec, block: int) -> Spec:
    """The origin's spec, with the block of external addresses that the copy has."""
    network = spec.network.model_copy(update={"floating_block": block})
    return spec.model_copy(update={"network": network})


def placed_spec(spec: Spec, plan: Plan) -> Spec:
    """The spec of a copy without what it says about hypervisors and its plan does not keep."""

    def given(group: Group, pool: str) -> dict[str, Any]:
        there = [node.hypervisor for node in plan.nodes if node.pool == pool]
        is_elsewhere = group.hypervisor is not None and any(one != group.hypervisor for one in there)
        together = group.apart and len({*there}) < len(there)
        return {**({"hypervisor": None} if is_elsewhere else {}), **({"apart": False} if together else {})}

    controllers = spec.controllers.model_copy(update=given(spec.controllers, ""))
    workers = tuple(pool.model_copy(update=given(pool, pool.name)) for pool in spec.workers)
    linux = spec.linux_workers.model_copy(update=given(spec.linux_workers, LINUX_POOL))
    changed = {"controllers": controllers, "workers": workers, "linux_workers": linux}
    changed = {name: value for name, value in changed.items() if value != getattr(spec, name)}
    if (used := len(plan.hypervisors)) > spec.hypervisors:
        changed["hypervisors"] = used
    return spec.model_copy(update=changed) if changed else spec


def plan_of(
    origin: Plan,
    lab: str,
    block: int,
    elsewhere: Mapping[str, Placement] = MappingProxyType({}),
    facts: Mapping[str, MachineFacts] = MappingProxyType({}),
) -> Plan:
    """The plan of a copy of *origin* under another name, with its external addresses in *block*.

    :param elsewhere: the placement of those nodes that are on other hypervisors than *origin*'s.
    :param facts: of these hypervisors, by name.
    :raises UsageError: its name can't be a lab's, or the block is outside the external network.
    """
    check_lab_name(lab)
    if origin.joins:
        raise UsageError(
            f"The lab '{origin.lab}' can't be copied: its nodes joined an external cluster.",
            why="A copy's nodes would be in the same cluster under the same names.",
            cure="Copy a lab that has its own cluster.",
        )
    router, *floating = addresses.external_block(origin.network.external_cidr, lab, len(origin.nodes) + 1, block)
    nodes = tuple(
        _node(node, origin.lab, lab, at, elsewhere.get(node.name))
        for node, at in zip(origin.nodes, floating, strict=True)
    )
    reach = origin.network.reach
    network = origin.network.model_copy(
        update={
            "switch": f"winlab-{lab}",
            "router": f"winlab-{lab}-router",
            "router_external": router,
            "router_external_mac": addresses.router_mac(lab, reach),
        }
    )
    cluster = origin.kubernetes
    if cluster is not None:
        controllers = [node for node in nodes if node.role == "controller"]
        outer = router if len(controllers) > 1 else controllers[0].floating
        cluster = cluster.model_copy(update={"external": f"{outer}:{API_PORT}"})
    own = {"lab": lab, "network": network, "kubernetes": cluster, "nodes": nodes, "kept": origin.as_kept()}
    names = [node.name for node in nodes] if elsewhere else origin.placed
    placed = dict.fromkeys(names, f"beside the disks of '{origin.lab}'")
    placed |= {name: placement.why for name, placement in elsewhere.items()}
    known = {**origin.hypervisors, **facts}
    hosts = {node.hypervisor: known[node.hypervisor] for node in nodes} if elsewhere else origin.hosts
    return origin.model_copy(update={**own, "builders": (), "placed": placed, "hosts": hosts})


def plan_again(origin: Plan, existing: Plan) -> Plan:
    """The plan of an existing copy that is put back to *origin*: it keeps its name, hypervisors and external addresses.

    :raises ConflictError: it is not a copy of *origin*'s lab.
    """
    if existing.network.domain != origin.network.domain:
        raise ConflictError(
            f"The lab '{existing.lab}' is not a copy of the lab '{origin.lab}'.",
            cure="Make a copy with 'winlab clone', which takes a new name.",
        )
    (block,) = addresses.blocks(existing.network.external_cidr, [existing.network.router_external])
    return plan_of(origin, existing.lab, block, elsewhere_of(origin, existing), existing.hypervisors)


def elsewhere_of(origin: Plan, existing: Plan) -> dict[str, Placement]:
    """The placement of those nodes of an existing copy that are on other hypervisors than *origin*'s."""
    there = {node.name: node.hypervisor for node in existing.nodes}
    return {
        node.name: Placement(there[node.name], existing.placed.get(node.name, RECORDED))
        for node in origin.nodes
        if there.get(node.name, node.hypervisor) != node.hypervisor
    }


def _node(node: NodePlan, origin: str, lab: str, floating: str, elsewhere: Placement | None) -> NodePlan:
    def renamed(volume: VolumePlan) -> VolumePlan:
        if volume.role == "base":
            return volume
        return volume.model_copy(
            update={"name": volume.name.replace(f"{origin}.{node.name}.", f"{lab}.{node.name}.", 1)}
        )

    return node.model_copy(
        update={
            "domain": addresses.domain(lab, node.name),
            "uuid": addresses.make_uuid(lab, node.name),
            "port": addresses.make_uuid(lab, node.name, "port"),
            "floating": floating,
            "hypervisor": node.hypervisor if elsewhere is None else elsewhere.host,
            "volumes": tuple(renamed(volume) for volume in node.volumes),
        }
    )
