"""The lab's rows in OVN's northbound database, as values. Pure; winlab/adapters/overlay writes them.

One logical switch with DHCP (fixed leases) and DNS, one router with source NAT, and for each node an external address
(``dnat_and_snat``). So the host needs neither routes nor root for a lab, and two labs may use the same inner addresses.
Nodes send from their own addresses only, and reach no other lab unless both labs say so.
Source: ovn-nb(5).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from winlab.design import cni
from winlab.design.plan import addresses, tags
from winlab.design.plan.cluster import API_PORT, network
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan

LEASE_SECONDS = 86400
BRIDGED = 1000  # the priority of what may not leave for a network of this host that the lab is attached to
LINK_LOCAL = "169.254.0.0/16"  # a cloud's metadata service is there, with the host's own credentials


@dataclass(frozen=True)
class SwitchPort:
    """A logical switch port; ``options`` and ``type`` as in ovn-nb(5).

    ``security`` are the MAC and the addresses that it may send from; empty: any.
    """

    name: str
    addresses: str
    external_ids: dict[str, str]
    type: str = ""
    options: tuple[tuple[str, str], ...] = ()
    dhcp: bool = False
    security: str = ""


@dataclass(frozen=True)
class RouterPort:
    """A logical router port. ``network`` is address/prefix; ``gateway`` says whether it needs a gateway chassis."""

    name: str
    mac: str
    network: str
    gateway: bool = False


@dataclass(frozen=True)
class Nat:
    """An address translation; ``external_mac`` and ``port`` stay empty: translation is done on the gateway chassis."""

    type: str
    external: str
    logical: str
    external_ids: dict[str, str]


@dataclass(frozen=True)
class Policy:
    """What the router does with the packets that match: ``allow`` or ``drop``. The highest priority decides."""

    priority: int
    match: str
    action: str


@dataclass(frozen=True)
class Balancer:
    """A load balancer for TCP: ``vip`` and ``backends`` are address:port.

    OVN checks the health of each backend (``ports``: its address and logical port) from the address ``prober``, and
    sends no connections to one that does not answer.
    """

    name: str
    vip: str
    backends: tuple[str, ...]
    ports: tuple[tuple[str, str], ...]
    prober: str
    on_switch: bool


@dataclass(frozen=True)
class Topology:
    """All rows of a lab.

    ``claims`` are names of ports of the external switch that nothing is plugged into, one for each block of external
    addresses. OVN allows a name once, so that of two labs that take a block at the same time only one gets it.
    ``untranslated`` are the networks towards which the router translates nothing, as a set of OVN's with a name.
    ``acls`` are what the switch drops on the way out of a port.
    ``chassis`` is the first hypervisor's. ``spread`` says whether nodes are on others (:mod:`.gateways`).
    """

    external_ids: dict[str, str]
    switch: str
    switch_config: dict[str, str]
    ports: tuple[SwitchPort, ...]
    dhcp_cidr: str
    dhcp_options: dict[str, str]
    dns: dict[str, str]
    router: str
    router_options: dict[str, str]
    router_ports: tuple[RouterPort, ...]
    external_switch: str
    external_port: SwitchPort
    claims: tuple[str, ...]
    default_route: str
    discarded: tuple[str, ...]
    nats: tuple[Nat, ...]
    policies: tuple[Policy, ...]
    balancers: tuple[Balancer, ...]
    chassis: str
    spread: bool = False
    untranslated: tuple[str, tuple[str, ...]] | None = None
    acls: tuple[Policy, ...] = ()


def physical(bridge: str) -> str:
    """OVN's name for the network of a bridge of the host (``ovn-bridge-mappings``)."""
    return f"winlab-{bridge}"


def topology(plan: Plan) -> Topology:
    """The rows of the plan's lab at a site of one hypervisor; :mod:`.gateways` has what others add."""
    net = plan.network
    ids = tags.external_ids(plan)
    prefix = ipaddress.IPv4Network(net.cidr).prefixlen
    external_prefix = ipaddress.IPv4Network(net.external_cidr).prefixlen
    snat = () if plan.kubernetes is None else cni.get(plan.cluster.profile).router_snat(network(plan))
    inside, outside = f"{net.router}-inside", f"{net.router}-outside"
    router_port = SwitchPort(f"{net.switch}-to-router", "router", ids, "router", (("router-port", inside),))
    return Topology(
        external_ids=ids,
        switch=net.switch,
        switch_config={"subnet": net.cidr, "exclude_ips": net.gateway},
        ports=(router_port, *_bridged(plan), *(_node_port(plan, node) for node in plan.nodes)),
        dhcp_cidr=net.cidr,
        dhcp_options={
            "server_id": net.gateway,
            "server_mac": net.gateway_mac,
            "lease_time": str(LEASE_SECONDS),
            "router": net.gateway,
            "dns_server": "{" + ", ".join(net.resolvers) + "}",
            "mtu": str(net.mtu),
            "domain_name": f'"{net.domain}"',
        },
        dns=_names(plan),
        router=net.router,
        # learning from every ARP packet costs much where many labs share the external switch
        router_options={"always_learn_from_arp_request": "false", "dynamic_neigh_routers": "true"},
        router_ports=(
            RouterPort(inside, net.gateway_mac, f"{net.gateway}/{prefix}"),
            RouterPort(outside, net.router_external_mac, f"{net.router_external}/{external_prefix}", gateway=True),
        ),
        external_switch=net.external_switch,
        external_port=SwitchPort(
            f"{net.external_switch}-to-{plan.lab}",
            "router",
            ids,
            "router",
            (("router-port", outside), ("nat-addresses", "router")),
        ),
        claims=tuple(
            f"{net.external_switch}-block-{number}"
            for number in addresses.blocks(net.external_cidr, plan.external_addresses)
        ),
        default_route=net.external_gateway,
        discarded=_discarded(plan),
        policies=_policies(plan, inside, outside),
        balancers=_balancers(plan),
        chassis=plan.host.chassis,
        spread=any(node.hypervisor != HYPERVISOR for node in plan.nodes),
        untranslated=_untranslated(plan),
        acls=_acls(plan),
        nats=(
            Nat("snat", net.router_external, net.cidr, ids),
            # pods that talk to the outside under their own addresses
            *(Nat("snat", net.router_external, cidr, ids) for cidr in snat),
            *(Nat("dnat_and_snat", node.floating, node.address, tags.external_ids(plan, node)) for node in plan.nodes),
        ),
    )


def _untranslated(plan: Plan) -> tuple[str, tuple[str, ...]] | None:
    """The cluster's networks, if the lab is routed to them. A set's name has no hyphens, and a lab's has no dots."""
    attachment = plan.network.attachment
    if attachment is None or attachment.bridge:
        return None
    return f"winlab.{plan.lab.replace('-', '.')}", attachment.networks


def _bridged(plan: Plan) -> tuple[SwitchPort, ...]:
    """The port by which the lab's switch is joined to a bridge of the host."""
    attachment = plan.network.attachment
    if attachment is None or not attachment.bridge:
        return ()
    options = (("network_name", physical(attachment.bridge)),)
    return (SwitchPort(_bridged_name(plan), "unknown", tags.external_ids(plan), "localnet", options),)


def _bridged_name(plan: Plan) -> str:
    return f"{plan.network.switch}-attached"


def _acls(plan: Plan) -> tuple[Policy, ...]:
    """What may not leave for the bridge: all but what is for the cluster, and nothing for the host's address on it.

    The host forwards what comes from such a bridge, so that a node would get past the policies of its own router.
    """
    attachment = plan.network.attachment
    if attachment is None or not attachment.bridge or plan.network.reach == "all":
        return ()
    out, theirs = f'outport == "{_bridged_name(plan)}"', ", ".join(attachment.networks)
    return (
        Policy(BRIDGED, f"{out} && ip4 && ip4.dst != {{{theirs}}}", "drop"),
        Policy(BRIDGED, f"{out} && ip4.dst == {attachment.host}", "drop"),
        Policy(BRIDGED, f"{out} && ip6", "drop"),
    )


def _discarded(plan: Plan) -> tuple[str, ...]:
    """The networks to which nothing may leave.

    Packets to a service or pod that is not known yet must not: a host outside may have its address. CoreDNS once
    started before kube-proxy was ready and reached another 10.96.0.1. In an external cluster the pods that this
    router does not know are outside.
    """
    if plan.kubernetes is None:
        return ()
    return (plan.cluster.service_cidr, *(() if plan.joins else (plan.cluster.pod_cidr,)))


def _policies(plan: Plan, inside: str, outside: str) -> tuple[Policy, ...]:
    """What may not leave or enter the lab.

    All labs' routers are neighbours, so each refuses what its own nodes send to others, and what others send.
    Otherwise an open lab could send datagrams, which need no answer, to one that is not open.

    :param inside: the router's port on the lab's switch.
    :param outside: the router's port on the external switch.
    """
    net = plan.network
    from_nodes = f'inport == "{inside}" && ip4.dst =='
    from_outside = f'inport == "{outside}" && ip4.src =='
    servers = [one for one in net.resolvers if ipaddress.ip_address(one) in ipaddress.ip_network(LINK_LOCAL)]
    never = (
        # a cloud's name server may have the address of its metadata service
        *(
            Policy(310, f"{from_nodes} {one} && {kind}.dst == 53", "allow")
            for one in servers
            for kind in ("udp", "tcp")
        ),
        Policy(300, f"{from_nodes} {LINK_LOCAL}", "drop"),
    )
    if net.reach != "internet":
        return never
    own = ", ".join((net.external_gateway, *plan.external_addresses))
    return (
        *never,
        # the host, whose own firewall decides, and the nodes by the addresses that they have outside
        Policy(200, f"{from_nodes} {{{own}}}", "allow"),
        Policy(100, f"{from_nodes} {net.external_cidr}", "drop"),
        # what a node sends to another one's outer address comes back in by this port
        Policy(200, f"{from_outside} {{{own}}}", "allow"),
        Policy(100, f"{from_outside} {net.external_cidr}", "drop"),
    )


def _balancers(plan: Plan) -> tuple[Balancer, ...]:
    """The load balancers of several controllers: one API address inside and one outside, without a proxy machine."""
    controllers = [node for node in plan.nodes if node.role == "controller"]
    if len(controllers) < 2:
        return ()
    backends = tuple(f"{node.address}:{API_PORT}" for node in controllers)
    ports = tuple((node.address, node.port) for node in controllers)
    prober = addresses.inner(plan.network.cidr, addresses.PROBER)
    name = f"{plan.network.router}-api"
    return (
        Balancer(f"{name}-inside", plan.cluster.endpoint, backends, ports, prober, on_switch=True),
        Balancer(f"{name}-outside", plan.cluster.external, backends, ports, prober, on_switch=False),
    )


def _node_port(plan: Plan, node: NodePlan) -> SwitchPort:
    own = f"{node.mac} {node.address}"
    # Pods that are not encapsulated come from the node's MAC with addresses of their own; which, is not known yet.
    routed = node.is_member and cni.get(plan.cluster.profile).encapsulation == "none"
    pods = f" {plan.cluster.pod_cidr}" if routed else ""
    # an old machine of a node that was made again elsewhere must not get its port when its hypervisor is back
    chassis = plan.hypervisors[node.hypervisor].chassis if plan.hosts else ""
    options = (("requested-chassis", chassis),) if chassis else ()
    return SwitchPort(node.port, own, tags.external_ids(plan, node), options=options, dhcp=True, security=own + pods)


def _names(plan: Plan) -> dict[str, str]:
    """The records of OVN's DNS: each node by its short and its full name, and the reverse records."""
    records = {}
    for node in plan.nodes:
        records[node.name] = node.address
        records[f"{node.name}.{plan.network.domain}"] = node.address
        reverse = ipaddress.IPv4Address(node.address).reverse_pointer
        records[reverse] = f"{node.name}.{plan.network.domain}"
    if plan.alias is not None:
        name, address = plan.alias
        records[name] = records[f"{name}.{plan.network.domain}"] = address  # Windows may add the lab's domain to it
    return records
