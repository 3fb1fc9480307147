"""Makes the plan: everything that will exist, before anything is touched. Pure: the same input, the same plan."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from winlab import settings
from winlab.design.catalog import recipes
from winlab.design.plan import addons, addresses, attachment, golden, linux, placement, resolvers, windows
from winlab.design.plan import cluster as clusters
from winlab.design.plan.cluster_plan import ClusterPlan
from winlab.design.plan.facts import HYPERVISOR, HostFacts, MachineFacts
from winlab.design.plan.kept import Kept
from winlab.design.plan.lab_name import check_lab_name
from winlab.design.plan.machine import Place
from winlab.design.plan.model import Plan
from winlab.design.plan.network_plan import NetworkPlan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.design.spec import pools
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import Pool
from winlab.design.system import LINUX, WINDOWS, System
from winlab.errors import UsageError

if TYPE_CHECKING:
    from winlab.design.plan.existing import ForeignCluster


WORKERS: Mapping[System, Callable[..., NodePlan]] = {LINUX: linux.worker, WINDOWS: windows.worker}


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


def make(
    spec: Spec,
    lab: str,
    facts: HostFacts,
    stock: Stock,
    foreign: ForeignCluster | None = None,
    standing: Sequence[Plan] = (),
    kept: Kept | None = None,
    again: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Decide every name, address and size of the lab. Reads nothing: the same arguments give the same plan.

    :param stock: what is available for this spec (:func:`winlab.supply.images.stock.take`).
    :param foreign: an external cluster that the workers are to join; the lab then has no controllers.
    :param standing: the plans that the lab was made from, the oldest first: its nodes keep their external addresses
        and their hypervisors.
    :param kept: the identity that it keeps from another lab; by default what the existing lab keeps.
    :param again: nodes that are placed again, as :func:`winlab.design.plan.placement.place` takes them.
    :raises UsageError: the spec is impossible on this host (networks overlap, external network too small).
    :raises HostError: the site's hypervisors lack something (:func:`winlab.design.plan.placement.place`).
    """
    check_lab_name(lab)
    kept = kept or (standing[0].kept if standing else None)
    if foreign is not None:
        addons.require_none(spec.addons)
    if spec.network.mtu > 1500:
        raise UsageError(
            f"network.mtu {spec.network.mtu} is larger than the host's external bridge allows (1500).",
            cure="Leave it at 1500.",
        )
    _check_proxy(spec, facts)
    if foreign is not None:
        _check_reach(spec, foreign, facts)
        if {pool.cluster for pool in spec.pools if pool.count} == {False}:
            raise UsageError(
                "No node would join the cluster.",
                why="All of the lab's machines are to stand beside it (workers.cluster=false).",
                cure="Leave workers.cluster out.",
            )
    controllers = range(1, spec.controllers.count + 1) if foreign is None else range(0)
    outside = _outside(spec, lab, facts, len(controllers), standing, stock)
    where = attachment.places(spec, lab, foreign)
    cidr, floating = where.cidr, iter(outside[1:])

    def place(name: str, offset: int) -> Place:
        same = None if kept is None else kept.node(name)
        return Place(lab, name, where.inner(offset) if same is None else same.address, next(floating), same)

    nodes: list[NodePlan] = []
    for number in controllers:
        at = place(f"controller-{number}", addresses.FIRST_CONTROLLER + number - 1)
        nodes.append(linux.controller(spec.controllers, at, stock))
    installed: list[NodePlan] = []
    places = pools.places(spec.pools)
    for pool in spec.pools:
        for number, offset in enumerate(places[pool.name][: pool.count], 1):
            node = _worker(pool, place(f"{pool.name}-{number}", offset), stock)
            installed.append(node)
            nodes.append(golden.clone(node, stock) if pool.golden else node)
    if kept is not None:
        _check_kept(kept, cidr, nodes)
    placed = placement.place(spec, nodes, stock.hypervisors, standing, again)
    if placed:
        nodes, installed = (
            [node.model_copy(update={"hypervisor": placed[node.name].host}) for node in some]
            for some in (nodes, installed)
        )
    mtu = _mtu(spec, facts, nodes, standing)
    cluster = _cluster(spec, nodes, outside[0], facts, mtu, foreign, cidr)
    inside = resolvers.inside(cidr, cluster, joins=foreign is not None)
    planned = Plan(
        lab=lab,
        host=facts,
        network=NetworkPlan(
            switch=f"winlab-{lab}",
            router=f"winlab-{lab}-router",
            cidr=cidr,
            gateway=where.gateway,
            gateway_mac=addresses.make_mac(lab, "router", "inner") if kept is None else kept.gateway_mac,
            domain=addresses.zone(lab) if kept is None else kept.zone,
            resolvers=resolvers.decide(spec.network.dns, facts.resolvers, inside),
            mtu=mtu,
            external_switch=settings.EXTERNAL_SWITCH,
            external_cidr=facts.external_cidr,
            external_gateway=facts.external_gateway,
            router_external=outside[0],
            router_external_mac=addresses.router_mac(lab, spec.network.reach),
            reach=spec.network.reach,
            proxy=spec.network.proxy if spec.network.proxy.secure else None,
            attachment=attachment.decide(spec, foreign, nodes),
        ),
        cluster=cluster,
        nodes=tuple(nodes),
        kept=kept,
        hosts=_hosts(nodes, stock, standing) if placed else {},
        placed={node.name: placed[node.name].why for node in nodes} if placed else {},
    )
    if kept is not None and planned.kubernetes is not None:
        own = planned.kubernetes.model_copy(update={"names": kept.names})
        planned = planned.model_copy(update={"kubernetes": own})
    chosen = addons.decide(spec.addons, planned, planned.cluster.versions.minor) if spec.addons else ()
    return planned.model_copy(update={"builders": golden.builders(planned, installed), "addons": chosen})


def _cluster(
    spec: Spec,
    nodes: Sequence[NodePlan],
    router: str,
    facts: HostFacts,
    mtu: int,
    foreign: ForeignCluster | None,
    cidr: str,
) -> ClusterPlan | None:
    """The cluster of those nodes that are members; None if there are none."""
    members = [node for node in nodes if node.is_member]
    if foreign is not None:
        return clusters.decide_joined(spec, members, facts.external_cidr, mtu, foreign, cidr)
    return clusters.decide(spec, members, router, facts.external_cidr, mtu) if members else None


def _hosts(nodes: Sequence[NodePlan], stock: Stock, standing: Sequence[Plan]) -> dict[str, MachineFacts]:
    """The facts of the hypervisors that the nodes are on: as they are now, or were when one last answered."""
    known = {name: facts for plan in standing for name, facts in plan.hypervisors.items()}
    known |= {host.name: host.facts for host in stock.hypervisors if not host.trouble}
    return {name: known[name] for name in sorted({node.hypervisor for node in nodes})}


def _mtu(spec: Spec, facts: HostFacts, nodes: Sequence[NodePlan], standing: Sequence[Plan]) -> int:
    """The largest packet between nodes: it fits into a tunnel if the lab's traffic takes one.

    Traffic to the router takes one from every hypervisor but the first. An existing lab keeps what it has, as does a
    copy of an imported snapshot: its guests may have the MTU of another site.

    :raises UsageError: the spec, or the existing lab that is to use further hypervisors, has a larger one.
    """
    asked, most = spec.network.mtu, facts.tunnel_mtu
    explicit = "mtu" in spec.network.model_fields_set
    has = standing[0].network.mtu if standing else None
    tunneled = {node.hypervisor for node in nodes} - {HYPERVISOR}
    if has is not None and not explicit and (tunneled or standing[0].hosts or standing[0].kept):
        mtu = has
    elif explicit or most is None or not tunneled:
        mtu = asked
    else:
        mtu = min(asked, most)
    further = tunneled - {node.hypervisor for plan in standing for node in plan.nodes}
    if most is not None and tunneled and mtu > most and (mtu != has or further):
        which = f"network.mtu {asked}" if explicit else f"The lab's network.mtu, {has},"
        cure = f"Use --set network.mtu={most}" if has is None else f"Make another lab with --set network.mtu={most}"
        raise UsageError(
            f"{which} is larger than what tunnels between the site's hypervisors take ({most}).",
            why=f"Larger packets are lost on the way to another hypervisor than '{HYPERVISOR}', without any error.",
            cure=f"{cure}, or keep the lab on '{HYPERVISOR}': --set hypervisors=1.",
        )
    return mtu


def _outside(
    spec: Spec, lab: str, facts: HostFacts, controllers: int, standing: Sequence[Plan], stock: Stock
) -> list[str]:
    """The external addresses: the router's, then those of the nodes in their order."""
    names = [f"controller-{number}" for number in range(1, controllers + 1)]
    names += [f"{pool.name}-{number}" for pool in spec.pools for number in range(1, pool.count + 1)]
    chosen, external = spec.network.floating_block, facts.external_cidr
    if standing:
        there = {node.name: node.floating for plan in reversed(standing) for node in plan.nodes}
        kept = addresses.external_kept(external, standing[0].network.router_external, there, names, chosen)
        if kept is not None:
            return kept
    return addresses.external_block(external, lab, len(names) + 1, chosen, stock.blocks)


def _check_kept(kept: Kept, cidr: str, nodes: Sequence[NodePlan]) -> None:
    """Check that the addresses that nodes keep fit this lab.

    :raises UsageError: it has another inner network, or other pools, so that two nodes would have one address.
    """
    if cidr != kept.cidr:
        raise UsageError(
            f"The inner network can't be {cidr}.",
            why=f"The nodes keep the addresses and certificates of {kept.zone}, which are in {kept.cidr}.",
            cure=f"Use --set network.cidr={kept.cidr}.",
        )
    taken: dict[str, str] = {}
    for node in nodes:
        if (other := taken.setdefault(node.address, node.name)) != node.name:
            raise UsageError(
                f"'{other}' and '{node.name}' would have the same address, {node.address}.",
                why=f"The nodes keep the addresses of {kept.zone}, and its pools were others.",
                cure="Keep the pools in their order, and add others after them.",
            )


def _check_reach(spec: Spec, foreign: ForeignCluster, facts: HostFacts) -> None:
    """Check that the workers may reach a cluster's API server that is on this host.

    :raises UsageError: they may not; they would wait for it forever.
    """
    server = foreign.external.rpartition(":")[0]
    if need := _lacking_reach(server, spec, facts):
        also = "" if need == "all" else " The lab that it is in needs the same."
        raise UsageError(
            f"The workers would not reach the cluster's API server at {server}.",
            why=f"It is on this host, and network.reach is '{spec.network.reach}'.",
            cure=f"Use --set network.reach={need}.{also}",
        )


def _check_proxy(spec: Spec, facts: HostFacts) -> None:
    """Check that nodes may reach a proxy that is on this host.

    :raises UsageError: they may not.
    """
    for host in spec.network.proxy.hosts:
        if need := _lacking_reach(host, spec, facts):
            raise UsageError(
                f"The nodes would not reach their proxy at {host}.",
                why=f"It is on this host, and network.reach is '{spec.network.reach}'.",
                cure=f"Use --set network.reach={need}.",
            )


def _lacking_reach(host: str, spec: Spec, facts: HostFacts) -> str:
    """The network.reach that nodes need for a server on this host or in another lab; empty if they have it."""
    try:
        server = ipaddress.IPv4Address(host)
    except ValueError:
        return ""  # a name
    if server not in facts.external_network:
        return ""
    need = "all" if str(server) == facts.external_gateway else "labs"
    return "" if spec.network.reach in (need, "all") else need


def _worker(row: Pool, place: Place, stock: Stock) -> NodePlan:
    recipe = recipes.get(row.os)
    memory = row.memory or recipe.memory_mib or 2048
    disk = row.disk or (recipe.disk_gib or 20) * 1024
    return WORKERS[recipe.system](row, recipe, place, stock, memory=memory, disk=disk)
