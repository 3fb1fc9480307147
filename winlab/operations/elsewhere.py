"""Make nodes again on another hypervisor, because theirs is lost or is to be left. What was on their disks is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.model import Spec
from winlab.errors import NotFoundError
from winlab.events import Listener, Note, Told
from winlab.near import did_you_mean
from winlab.operations import absent, apply, planning, recorded, registry, resize
from winlab.operations.drift.model import Drift
from winlab.site import Site

CONTROLLER = "It has the cluster's keys and etcd's data: destroy the lab and create it again."
ELSEWHERE = "made again on another hypervisor; what was on its disk is lost"


def spec(lab: str, site: Site, again: Mapping[str, str]) -> Spec:
    """The lab's spec, for as many hypervisors as its nodes are on then.

    :param again: the nodes that are made again, and the hypervisor of each; empty: any that the site has.
    :raises NotFoundError: this account has no record of the lab, or the lab has no such node.
    :raises HostError: the list of hypervisors can't be read.
    """
    held, own = recorded.read(site.folder(lab)), resize.unchanged(lab, site)
    nodes = {node.name: node.hypervisor for node in held.wanted.plan.nodes}
    for name in again:
        if name not in nodes:
            raise NotFoundError(
                f"The lab '{lab}' has no node '{name}'.", cure=f"{did_you_mean(name, nodes)}It has: {', '.join(nodes)}."
            )
    there = registry.names(site)
    used = {host for host in {**nodes, **again}.values() if host in there}
    count = max(len(used), min(own.hypervisors, len(there)))
    return own if count == own.hypervisors else own.changed([f"hypervisors={count}"])


def rebuild_lost(lab: str, site: Site, tell: Listener, *, check: bool) -> list[Drift]:
    """Make those nodes of a lab again whose hypervisors were forgotten; placement decides where.

    :param check: only report them.
    :returns: what was found, and whether it was repaired; empty if there are none.
    :raises NotFoundError: this account has no record of the lab.
    :raises WinlabError: a node can't be made.
    """
    folder = site.folder(lab)
    plan = recorded.read(folder).plan
    if all(node.hypervisor == HYPERVISOR for node in plan.nodes):
        return []
    with site.hypervisors() as hosts:
        nodes = absent.lost(plan, site, hosts)
    if not nodes:
        return []
    is_cluster = folder.has(folder.kubeconfig)
    found = [_drift(node, repairable=not (is_cluster and node.role == "controller")) for node in nodes]
    if check or not all(one.repairable for one in found):
        tell(Note(lab=lab, text="Nothing else is inspected before these nodes are made again."))
        return found
    again = {node.name: "" for node in nodes} | recorded.again(folder)
    proposal = planning.make(
        spec(lab, site, again), lab, site.host_facts, Told(tell, "plan"),
        standing=recorded.standing(folder), again=again, site=site,
    )  # fmt: skip
    apply.apply(proposal, site, tell, until="cluster" if is_cluster else "guests")
    return [replace(one, repaired=True) for one in found]


def _drift(node: NodePlan, *, repairable: bool) -> Drift:
    action = ELSEWHERE if repairable else CONTROLLER
    return Drift("machine", node.name, "hypervisor", node.hypervisor, "forgotten", action, repairable)
