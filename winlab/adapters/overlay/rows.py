"""A lab's rows of OVN's northbound database as they should be: to write, and to compare with the existing ones.

Source: ovn-nb(5) for tables and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from winlab.design.render import gateways
from winlab.design.render.topology import SwitchPort, Topology

# seconds and counts: a failed API server is removed after some 15 s
HEALTH_CHECK = {"interval": "5", "timeout": "10", "success_count": "1", "failure_count": "2"}
POD_ROUTE = "winlab-pod-route"  # in external_ids of routes to the nodes' pod networks


@dataclass(frozen=True, eq=False)
class Row:
    """One row. A value may be another row or a list of rows: the database then holds references to them."""

    table: str
    columns: dict[str, Any]


@dataclass(frozen=True)
class LabRows:
    """All rows of a lab: those of root tables with everything below them, and its ports on the external switch."""

    roots: tuple[Row, ...]
    external: tuple[Row, ...]


def of(top: Topology, others: Sequence[str] = ()) -> LabRows:
    """The rows of a topology.

    :param others: the chassis of the site's further hypervisors.
    """
    ids = top.external_ids
    dhcp = Row("DHCP_Options", {"cidr": top.dhcp_cidr, "options": top.dhcp_options, "external_ids": ids})
    dns = Row("DNS", {"records": top.dns, "external_ids": ids})
    balancers = [(_balancer(top, number), one.on_switch) for number, one in enumerate(top.balancers)]
    switch = Row(
        "Logical_Switch",
        {
            **({"acls": _acls(top)} if top.acls else {}),  # otherwise the column is the user's
            "name": top.switch,
            "other_config": top.switch_config,
            "dns_records": [dns],
            "load_balancer": [row for row, on_switch in balancers if on_switch],
            "ports": [_port(port, dhcp) for port in top.ports],
            "external_ids": ids,
        },
    )
    untranslated = [
        Row("Address_Set", {"name": name, "addresses": list(networks), "external_ids": ids})
        for name, networks in filter(None, [top.untranslated])
    ]
    hops = {"0.0.0.0/0": top.default_route, **dict.fromkeys(top.discarded, "discard")}
    router = Row(
        "Logical_Router",
        {
            "name": top.router,
            "options": top.router_options,
            "ports": _router_ports(top, gateways.gateways(top, others)),
            "nat": _nats(top, untranslated),
            "policies": _policies(top, others),
            "static_routes": [route(prefix, hop, ids) for prefix, hop in hops.items()],
            # including the switch's: only the router answers ARP for an address that no port has
            "load_balancer": [row for row, _ in balancers],
            "external_ids": ids,
        },
    )
    external = (_port(top.external_port, dhcp), *(_claim(name, ids) for name in top.claims))
    return LabRows((dhcp, dns, *untranslated, *(row for row, _ in balancers), switch, router), external)


def route(prefix: str, hop: str, ids: dict[str, str]) -> Row:
    """A static route of a router."""
    return Row("Logical_Router_Static_Route", {"ip_prefix": prefix, "nexthop": hop, "external_ids": ids})


def _port(port: SwitchPort, dhcp: Row) -> Row:
    return Row(
        "Logical_Switch_Port",
        {
            "name": port.name,
            "addresses": [port.addresses],
            "port_security": [port.security] if port.security else [],
            "enabled": [],
            "type": port.type,
            "options": dict(port.options),
            "dhcpv4_options": [dhcp] if port.dhcp else [],
            "external_ids": port.external_ids,
        },
    )


def _claim(name: str, ids: dict[str, str]) -> Row:
    """A port with nothing attached: only its name counts."""
    nothing = {"addresses": [], "port_security": [], "type": "", "options": {}, "dhcpv4_options": []}
    return Row("Logical_Switch_Port", {"name": name, **nothing, "enabled": [False], "external_ids": ids})


def _policies(top: Topology, others: Sequence[str]) -> list[Row]:
    return [
        Row(
            "Logical_Router_Policy",
            {
                "priority": policy.priority,
                "match": policy.match,
                "action": policy.action,
                "external_ids": top.external_ids,
            },
        )
        for policy in (*top.policies, *gateways.policies(top, others))
    ]


def _acls(top: Topology) -> list[Row]:
    return [
        Row(
            "ACL",
            {
                "direction": "to-lport",
                "priority": one.priority,
                "match": one.match,
                "action": one.action,
                "external_ids": top.external_ids,
            },
        )
        for one in top.acls
    ]


def _balancer(top: Topology, number: int) -> Row:
    one, ids = top.balancers[number], top.external_ids
    check = Row("Load_Balancer_Health_Check", {"vip": one.vip, "options": HEALTH_CHECK, "external_ids": ids})
    return Row(
        "Load_Balancer",
        {
            "name": one.name,
            "protocol": "tcp",
            "vips": {one.vip: ",".join(one.backends)},
            "ip_port_mappings": {address: f"{port}:{one.prober}" for address, port in one.ports},
            "health_check": [check],
            "external_ids": ids,
        },
    )


def _router_ports(top: Topology, chassis: Sequence[str]) -> list[Row]:
    rows = []
    for port in top.router_ports:
        rows.append(
            Row(
                "Logical_Router_Port",
                {
                    "name": port.name,
                    "mac": port.mac,
                    "networks": [port.network],
                    "gateway_chassis": [
                        _gateway(top, port.name, name, priority)
                        for priority, name in enumerate(reversed(chassis), 1)
                        if port.gateway
                    ],
                    "external_ids": top.external_ids,
                },
            )
        )
    return rows


def _gateway(top: Topology, port: str, chassis: str, priority: int) -> Row:
    columns = {"chassis_name": chassis, "priority": priority, "external_ids": top.external_ids}
    return Row("Gateway_Chassis", {"name": f"{port}-{chassis}", **columns})


def _nats(top: Topology, untranslated: list[Row]) -> list[Row]:
    return [
        Row(
            "NAT",
            {
                "type": nat.type,
                "external_ip": nat.external,
                "logical_ip": nat.logical,
                "exempted_ext_ips": untranslated,
                "external_ids": nat.external_ids,
            },
        )
        for nat in top.nats
    ]
