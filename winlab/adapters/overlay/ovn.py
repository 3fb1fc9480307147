"""The adapter to OVN's northbound database. Each change of a lab's network is one transaction: all or nothing.

Source: ovn-nb(5) for tables and columns, ovsdbapp for the protocol. Rows of root tables (switches, routers, DHCP
options, DNS) are deleted by tag, together with the rows that belong to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ovsdbapp.backend.ovs_idl import command, connection
from ovsdbapp.schema.ovn_northbound import impl_idl

from winlab import settings
from winlab.design.plan import golden, tags
from winlab.design.render.topology import Balancer, Policy, SwitchPort, Topology
from winlab.errors import AccessError, ConflictError, HostError, WinlabError

# seconds and counts: a failed API server is removed after some 15 s
HEALTH_CHECK = {"interval": "5", "timeout": "10", "success_count": "1", "failure_count": "2"}
TIMEOUT = 20  # seconds for one transaction
POD_ROUTE = "winlab-pod-route"  # in external_ids of routes to the nodes' pod networks


class Northbound:
    """A connection to the northbound database."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def lab_plan(self, lab: str) -> str | None:
        """The digest of the plan of the lab's network; None if there is no network."""
        for row in self._rows("Logical_Switch", lab):
            return cast(str, row.external_ids.get(tags.KEY_PLAN, ""))
        return None

    def labs(self) -> set[str]:
        """The labs that have any row, without the host's own ("host")."""
        return {
            row.external_ids[tags.KEY]
            for table in _tables(self._api)
            for row in table.rows.values()
            if tags.KEY in row.external_ids
        } - {tags.HOST}

    def apply(self, topology: Topology) -> None:
        """Make the lab's network, replacing an earlier one.

        :raises ConflictError: another lab has one of its external addresses.
        :raises HostError: the host has no external switch, because it was not set up.
        """
        if (holder := self.holder(topology)) is not None:
            raise _taken(topology, *holder)
        try:
            self._execute(_Apply(self._api, topology))
        except HostError as error:
            # another lab took a block meanwhile; the database refuses a second port with the name of its claim
            if claim := next((name for name in topology.claims if f"({name})" in error.why), None):
                raise _taken(topology, *(self.holder(topology) or ("another one", claim))) from error
            raise

    def holder(self, topology: Topology) -> tuple[str, str] | None:
        """The other lab that has one of the external addresses, and what it has; None if they are free."""
        lab = topology.external_ids[tags.KEY]
        wanted = {nat.external for nat in topology.nats}
        for router in self._api.tables["Logical_Router"].rows.values():
            owner = router.external_ids.get(tags.KEY, router.name)
            if owner == lab:
                continue
            taken = {row.external_ip for row in router.nat}
            taken |= {network.split("/")[0] for port in router.ports for network in port.networks}
            if both := sorted(wanted & taken):
                return owner, both[0]
        for port in self._api.tables["Logical_Switch_Port"].rows.values():
            owner = port.external_ids.get(tags.KEY, "")
            if port.name in topology.claims and owner != lab:
                return owner, port.name
        return None

    def pod_routes(self, lab: str) -> dict[str, str]:
        """The routes to pod networks on the lab's router: network to next hop."""
        return {
            route.ip_prefix: route.nexthop
            for router in self._rows("Logical_Router", lab)
            for route in router.static_routes
            if POD_ROUTE in route.external_ids
        }

    def set_pod_routes(self, lab: str, routes: dict[str, str]) -> None:
        """Make these the only routes to pod networks on the lab's router."""
        self._execute(_PodRoutes(self._api, lab, routes))

    def remove(self, lab: str) -> bool:
        """Remove all rows of the lab; whether there were any."""
        return cast(bool, self._execute(_Remove(self._api, lab)))

    def _execute(self, write: command.BaseCommand) -> Any:
        try:
            return write.execute(check_error=True)
        except WinlabError:
            raise
        except Exception as error:  # ovsdbapp raises RuntimeError, TimeoutException and others
            raise HostError(
                "OVN rejected a change of its northbound database.",
                why=str(error),
                cure="Run 'sudo winlab host setup', then the same command again; nothing was changed.",
                evidence="/var/log/ovn/ovsdb-server-nb.log",
            ) from error

    def _rows(self, table: str, lab: str) -> Iterator[Any]:
        for row in self._api.tables[table].rows.values():
            if row.external_ids.get(tags.KEY) == lab:
                yield row


def _taken(topology: Topology, owner: str, what: str) -> ConflictError:
    lab = topology.external_ids[tags.KEY]
    return ConflictError(
        f"The lab '{owner}' already has the external address or block {what}.",
        why="Both labs' names map to the same block of external addresses.",
        cure="Run the same command again: it takes another block."
        if lab.startswith(golden.LAB)
        else f"Choose another block for '{lab}' with --set network.floating_block=NUMBER, or another name.",
    )


class _Api(impl_idl.OvnNbApiIdlImpl):  # type: ignore[misc]
    """The schema on one connection. ovsdbapp keeps the first connection of a class, even when it is stopped."""

    _link: connection.Connection | None = None

    @property
    def ovsdb_connection(self) -> Any:
        return self._link

    @ovsdb_connection.setter
    def ovsdb_connection(self, link: connection.Connection) -> None:
        self._link = link


class _Apply(command.BaseCommand):  # type: ignore[misc]
    """Write a topology; one transaction."""

    def __init__(self, api: Any, topology: Topology) -> None:
        super().__init__(api)
        self.topology = topology

    def run_idl(self, txn: Any) -> None:
        top = self.topology
        _delete(self.api, top.external_ids[tags.KEY])
        external = _external_switch(self.api, top.external_switch)
        dhcp = self._insert(txn, "DHCP_Options", cidr=top.dhcp_cidr, options=top.dhcp_options)
        dns = self._insert(txn, "DNS", records=top.dns)
        balancers = self._balancers(txn)
        self._insert(
            txn,
            "Logical_Switch",
            name=top.switch,
            other_config=top.switch_config,
            dns_records=[dns],
            load_balancer=[row for one, row in balancers if one.on_switch],
            ports=[self._port(txn, port, dhcp) for port in top.ports],
        )
        hops = {"0.0.0.0/0": top.default_route, **dict.fromkeys(top.discarded, "discard")}
        self._insert(
            txn,
            "Logical_Router",
            name=top.router,
            options=top.router_options,
            ports=self._router_ports(txn),
            nat=self._nats(txn),
            policies=[self._policy(txn, policy) for policy in top.policies],
            static_routes=[self._route(txn, prefix, hop) for prefix, hop in hops.items()],
            # including the switch's: only the router answers ARP for an address that no port has
            load_balancer=[row for _, row in balancers],
        )
        external.addvalue("ports", self._port(txn, top.external_port, dhcp))
        for name in top.claims:
            external.addvalue("ports", self._claim(txn, name))

    def _route(self, txn: Any, prefix: str, hop: str) -> Any:
        route = txn.insert(self.api.tables["Logical_Router_Static_Route"])
        route.ip_prefix = prefix
        route.nexthop = hop
        route.external_ids = self.topology.external_ids
        return route

    def _policy(self, txn: Any, policy: Policy) -> Any:
        row = txn.insert(self.api.tables["Logical_Router_Policy"])
        row.priority = policy.priority
        row.match = policy.match
        row.action = policy.action
        row.external_ids = self.topology.external_ids
        return row

    def _insert(self, txn: Any, table: str, **columns: Any) -> Any:
        row = txn.insert(self.api.tables[table])
        for name, value in columns.items():
            setattr(row, name, value)
        row.external_ids = self.topology.external_ids
        return row

    def _port(self, txn: Any, port: SwitchPort, dhcp: Any) -> Any:
        row = txn.insert(self.api.tables["Logical_Switch_Port"])
        row.name = port.name
        row.addresses = [port.addresses]
        row.port_security = [port.security] if port.security else []
        row.type = port.type
        row.options = dict(port.options)
        row.external_ids = port.external_ids
        if port.dhcp:
            row.dhcpv4_options = dhcp
        return row

    def _claim(self, txn: Any, name: str) -> Any:
        row = txn.insert(self.api.tables["Logical_Switch_Port"])
        row.name = name
        row.enabled = False
        row.external_ids = self.topology.external_ids
        return row

    def _balancers(self, txn: Any) -> list[tuple[Balancer, Any]]:
        rows = []
        for one in self.topology.balancers:
            check = self._insert(txn, "Load_Balancer_Health_Check", vip=one.vip, options=HEALTH_CHECK)
            row = self._insert(
                txn,
                "Load_Balancer",
                name=one.name,
                protocol="tcp",
                vips={one.vip: ",".join(one.backends)},
                ip_port_mappings={address: f"{port}:{one.prober}" for address, port in one.ports},
                health_check=[check],
            )
            rows.append((one, row))
        return rows

    def _router_ports(self, txn: Any) -> list[Any]:
        rows = []
        for port in self.topology.router_ports:
            row = self._insert(txn, "Logical_Router_Port", name=port.name, mac=port.mac, networks=[port.network])
            if port.gateway:
                chassis = self._insert(txn, "Gateway_Chassis", name=f"{port.name}-{self.topology.chassis}", priority=1)
                chassis.chassis_name = self.topology.chassis
                row.gateway_chassis = [chassis]
            rows.append(row)
        return rows

    def _nats(self, txn: Any) -> list[Any]:
        rows = []
        for nat in self.topology.nats:
            row = txn.insert(self.api.tables["NAT"])
            row.type = nat.type
            row.external_ip = nat.external
            row.logical_ip = nat.logical
            row.external_ids = nat.external_ids
            rows.append(row)
        return rows


class _PodRoutes(command.BaseCommand):  # type: ignore[misc]
    """Replace a lab's routes to pod networks; one transaction."""

    def __init__(self, api: Any, lab: str, routes: dict[str, str]) -> None:
        super().__init__(api)
        self.lab = lab
        self.routes = routes

    def run_idl(self, txn: Any) -> None:
        for router in self.api.tables["Logical_Router"].rows.values():
            if router.external_ids.get(tags.KEY) != self.lab:
                continue
            for route in router.static_routes:
                if POD_ROUTE in route.external_ids:
                    router.delvalue("static_routes", route)
            for network, hop in self.routes.items():
                route = txn.insert(self.api.tables["Logical_Router_Static_Route"])
                route.ip_prefix = network
                route.nexthop = hop
                route.external_ids = {**router.external_ids, POD_ROUTE: "true"}
                router.addvalue("static_routes", route)


class _Remove(command.BaseCommand):  # type: ignore[misc]
    """Delete a lab's rows; one transaction."""

    def __init__(self, api: Any, lab: str) -> None:
        super().__init__(api)
        self.lab = lab

    def run_idl(self, txn: Any) -> None:  # noqa: ARG002
        self.result = _delete(self.api, self.lab)


def _delete(api: Any, lab: str) -> bool:
    found = False
    for switch in api.tables["Logical_Switch"].rows.values():
        if switch.external_ids.get(tags.KEY) == lab:
            continue  # it is deleted as a whole below
        for port in switch.ports:
            if port.external_ids.get(tags.KEY) == lab:
                switch.delvalue("ports", port)
                found = True
    for table in _tables(api):
        for row in list(table.rows.values()):
            if row.external_ids.get(tags.KEY) == lab:
                row.delete()
                found = True
    return found


def _tables(api: Any) -> list[Any]:
    """The tables in which labs have independent rows. An older OVN does not have all of them."""
    return [api.tables[name] for name in tags.TABLES if name in api.tables]


def _external_switch(api: Any, name: str) -> Any:
    for row in api.tables["Logical_Switch"].rows.values():
        if row.name == name:
            return row
    raise HostError(
        f"OVN has no logical switch '{name}', through which labs reach the outside.",
        why="The host was not set up, or something removed it.",
        cure="Run 'sudo winlab host setup'; it can be run at any time.",
    )


@contextmanager
def connect(remote: str | None = None) -> Iterator[Northbound]:
    """Connect to the northbound database; *remote* in OVSDB's notation, default :func:`settings.northbound`.

    :raises HostError: there is no database.
    :raises AccessError: this user may not use it.
    """
    remote = remote or settings.northbound()
    if remote.startswith("unix:"):
        _check_socket(Path(remote.removeprefix("unix:")))
    try:
        idl = connection.OvsdbIdl.from_server(remote, "OVN_Northbound")
        link = connection.Connection(idl, timeout=TIMEOUT)
        api = _Api(link, start=False)
        link.start()
    except Exception as error:  # ovsdbapp raises plain Exceptions
        raise HostError(
            f"The OVN northbound database at '{remote}' does not answer.",
            why=str(error),
            cure="Run 'sudo winlab host setup'; 'winlab doctor' shows more.",
        ) from error
    try:
        yield Northbound(api)
    finally:
        link.stop(TIMEOUT)


def _check_socket(path: Path) -> None:
    try:
        there = path.exists()
    except PermissionError:
        there = True
    if not there:
        raise HostError(
            f"There is no OVN northbound socket at '{path}'.",
            cure="Run 'sudo winlab host setup'; it can be run at any time.",
        )
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except PermissionError as error:
            raise AccessError(
                f"You may not use the OVN northbound socket '{path}'.",
                why=f"It is open to the group '{settings.GROUP}'.",
                cure=f"Run 'sudo usermod -aG {settings.GROUP} $USER' and log in again.",
            ) from error
        except OSError as error:
            raise HostError(
                f"The OVN northbound database behind '{path}' does not answer.",
                why=str(error),
                cure="Run 'sudo winlab host setup'.",
            ) from error
