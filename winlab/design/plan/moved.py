"""A lab with a node on another hypervisor: what the move must not break, and the plan and the spec after it. Pure."""

from __future__ import annotations

from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.hosts import Group
from winlab.design.spec.model import Spec
from winlab.errors import ConflictError

WHY = "moved there"


def plan(old: Plan, node: str, host: str, facts: MachineFacts, first: MachineFacts) -> Plan:
    """The plan with the node on another hypervisor.

    :param facts: of that hypervisor; *first* those of the site's first one.
    """
    nodes = tuple(one.model_copy(update={"hypervisor": host}) if one.name == node else one for one in old.nodes)
    known = {name: first if name == HYPERVISOR else one for name, one in old.hypervisors.items()} | {host: facts}
    placed = {one.name: old.placed.get(one.name, "") or "it was made there" for one in old.nodes} | {node: WHY}
    hosts = {name: known[name] for name in sorted({one.hypervisor for one in nodes})}
    return old.model_copy(update={"nodes": nodes, "hosts": hosts, "placed": placed})


def spec(old: Spec, new: Plan) -> Spec:
    """The spec, which lets the lab use as many hypervisors as its nodes are on."""
    count = len({node.hypervisor for node in new.nodes})
    return old if count <= old.hypervisors else old.model_copy(update={"hypervisors": count})


def require(given: Spec, old: Plan, node: NodePlan, host: str, site: HostFacts) -> None:
    """Check that the spec and the network let a node be on another hypervisor.

    :param site: the facts of the site as they are now.
    :raises ConflictError: they do not.
    """
    groups: dict[str, Group] = {"": given.controllers, **{pool.name: pool for pool in given.pools}}
    group = groups[node.pool]
    if group.hypervisor not in (None, host):
        raise ConflictError(
            f"'{node.name}' can't move to '{host}': the lab's spec pins it to '{group.hypervisor}'.",
            cure="Take 'hypervisor' out of the spec, run 'winlab apply' with it, then move the node.",
        )
    others = [one.name for one in old.nodes if one.hypervisor == host and one.pool == node.pool and one != node]
    if group.apart and others:
        raise ConflictError(
            f"'{node.name}' can't move to '{host}': the spec keeps it apart from {', '.join(others)}, which is there.",
            cure="Choose another hypervisor, or take 'apart' out of the spec and run 'winlab apply' with it.",
        )
    tunneled = ({one.hypervisor for one in old.nodes if one != node} | {host}) - {HYPERVISOR}
    most, mtu = site.tunnel_mtu, old.network.mtu
    if tunneled and most is not None and mtu > most:
        raise ConflictError(
            f"'{node.name}' can't move to '{host}': packets of the lab '{old.lab}' have up to {mtu} bytes, and tunnels "
            f"between hypervisors take {most}.",
            why="Larger packets would be lost without any error. Guests, pods and certificates are made for one size.",
            cure=f"Give the hosts' tunnels a larger MTU (docs/placement.md), or make the lab again with "
            f"--set network.mtu={most}.",
        )


def hinders(source: tuple[str, HostFacts], target: tuple[str, HostFacts], today: str) -> str:
    """Why a running machine can't move from one host to another, as a sentence without its end; empty if it can.

    :param source: the hypervisor's name and its facts.
    :param today: the date, as ``2027-01-31``.
    """
    (origin, here), (host, there) = source, target
    for name, facts in (source, target):
        if facts.moves is None or facts.moves.until < today:
            lacks = (
                "has no certificate for it"
                if facts.moves is None
                else f"has a certificate only until {facts.moves.until}"
            )
            return f"'{name}' {lacks}, which 'sudo winlab host setup' makes; on a host that has joined, with --join"
    if here.accelerator != there.accelerator:
        return f"'{origin}' runs guests with {here.accelerator}, and '{host}' with {there.accelerator}"
    if here.datapath != there.datapath:
        return f"the datapath of '{origin}' is {here.datapath}, and that of '{host}' is {there.datapath}"
    if _major(there) < _major(here):
        return f"QEMU is {here.emulator_version} on '{origin}', and {there.emulator_version} on '{host}'"
    return ""


def _major(facts: HostFacts) -> int:
    number = facts.emulator_version.split(".")[0]
    return int(number) if number.isdigit() else 0
