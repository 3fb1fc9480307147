"""The name servers that nodes are given: those that they can reach. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

from winlab.design.plan.cluster_plan import ClusterPlan
from winlab.design.plan.model import Plan
from winlab.design.spec.networks import THIS_NETWORK
from winlab.errors import UsageError


def is_server(address: IPv4Address) -> bool:
    """Whether a server elsewhere can have an address.

    Link-local ones can: the labs' routers and the host's firewall let name servers there pass, as clouds have them.
    """
    return not (address.is_loopback or address.is_multicast or address.is_reserved or address in THIS_NETWORK)


def decide(asked: tuple[str, ...], known: list[str], inside: Mapping[str, str]) -> tuple[str, ...]:
    """The resolvers of nodes.

    :param asked: those of the spec.
    :param known: the host's own, which are used if the spec names none.
    :param inside: the networks inside the lab, by their names in messages.
    :raises UsageError: nodes can't reach one of the spec, or any of the host.
    """
    reasons = [why for one in asked or known if (why := unreachable(one, inside))]
    if reasons and (asked or len(reasons) == len(known)):
        raise UsageError(
            f"Nodes can't reach the name {'server' if len(reasons) == 1 else 'servers'} that they would be given.",
            why=" ".join(reasons),
            cure="Name one that they can reach with network.dns, or choose other networks for the lab.",
        )
    return tuple(one for one in asked or known if not unreachable(one, inside))


def unreachable(server: str, inside: Mapping[str, str]) -> str:
    """Why nodes can't reach a name server, as a sentence; empty if they may."""
    address = IPv4Address(server)
    if not is_server(address):
        return f"{server} is not the address of another machine."
    within = next((name for name, cidr in inside.items() if address in IPv4Network(cidr)), None)
    return "" if within is None else f"{server} is in the network of the {within}, {inside[within]}."


def inside(cidr: str, cluster: ClusterPlan | None, *, joins: bool) -> dict[str, str]:
    """The networks whose addresses never leave a lab; the pods of an external cluster may be anywhere."""
    found = {"nodes": cidr}
    if cluster is not None:
        found["services"] = cluster.service_cidr
        if not joins:
            found["pods"] = cluster.pod_cidr
    return found


def left_out(plan: Plan) -> list[str]:
    """Sentences about those of the host's resolvers that the nodes are not given."""
    if not set(plan.network.resolvers) < set(plan.host.resolvers):
        return []  # all of them, or those of the spec
    networks = inside(plan.network.cidr, plan.kubernetes, joins=plan.joins)
    return [
        f"Nodes are not given this host's name server {one}, which they can't reach. {why} network.dns can name others."
        for one in plan.host.resolvers
        if (why := unreachable(one, networks))
    ]
