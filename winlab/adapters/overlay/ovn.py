"""The adapter to OVN's northbound database. Each change of a lab's network is one transaction: all or nothing.

Source: ovn-nb(5) for tables and columns, ovsdbapp for the protocol. Rows of root tables (switches, routers, DHCP
options, DNS) are deleted by tag, together with the rows that belong to them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from ovsdbapp.backend.ovs_idl import command, connection
from ovsdbapp.schema.ovn_northbound import impl_idl

from winlab import settings
from winlab.adapters.overlay import faults, rows
from winlab.adapters.overlay.rows import POD_ROUTE, Row
from winlab.design.fault.base import SwitchRule
from winlab.design.plan import golden, tags
from winlab.design.render.topology import Topology
from winlab.errors import AccessError, ConflictError, HostError, WinlabError

TIMEOUT = 20  # seconds for one transaction
POLL = 0.1  # seconds between two looks at a sequence number


class Northbound:
    """A connection to the northbound database."""

    def __init__(self, api: Any) -> None:
        self._api = api

    def lab_plan(self, lab: str) -> str | None:
        """The digest of the plan that the lab's switch was made from; None if there is no switch."""
        for row in self._api.tables["Logical_Switch"].rows.values():
            if row.external_ids.get(tags.KEY) == lab:
                return cast(str, row.external_ids.get(tags.KEY_PLAN, ""))
        return None

    def has(self, topology: Topology) -> bool:
        """Whether the lab's network is exactly this one: every row and every column that :meth:`apply` writes."""
        lab, wanted = topology.external_ids[tags.KEY], rows.of(topology)
        roots = [row for table in _tables(self._api) for row in table.rows.values()]
        ports = [
            port
            for row in roots
            if row._table.name == "Logical_Switch" and row.name == topology.external_switch
            for port in row.ports
        ]
        return rows.same(wanted.roots, (row for row in roots if row.external_ids.get(tags.KEY) == lab)) and rows.same(
            wanted.external, (port for port in ports if port.external_ids.get(tags.KEY) == lab)
        )

    def await_followers(self, seconds: float) -> None:
        """Wait until northd and the controllers have processed everything written so far, as ``--wait=hv`` does.

        :raises HostError: they have not within that time.
        """
        number = self._execute(_Count(self._api))
        end = time.monotonic() + seconds
        while True:
            (row,) = self._api.tables["NB_Global"].rows.values()
            if row.hv_cfg >= number:
                return
            if time.monotonic() > end:
                break
            time.sleep(POLL)
        who = "OVN's northd does" if row.sb_cfg < number else "OVN's controller (or one of several) does"
        raise HostError(
            f"{who} not follow the northbound database.",
            why=f"Changes of labs' networks were not processed within {seconds:.0f} s.",
            cure="Run 'sudo winlab host setup'. If that does not help, look for a hypervisor that is gone in "
            "'ovn-sbctl show', and remove it with 'ovn-sbctl chassis-del'.",
            evidence="/var/log/ovn/ovn-northd.log and ovn-controller.log",
        )

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
        return {route.ip_prefix: route.nexthop for route in _pod_routes(self._api, lab)}

    def set_pod_routes(self, lab: str, routes: dict[str, str]) -> None:
        """Make these the only routes to pod networks on the lab's router."""
        self._execute(_PodRoutes(self._api, lab, routes))

    def fault_records(self, lab: str) -> list[str]:
        """What the lab's faults on purpose say of themselves, one text each."""
        return faults.records(self._api, lab)

    def put_fault(self, lab: str, fault: str, record: str, rules: Sequence[SwitchRule]) -> bool:
        """Set the rules of a fault on purpose, or remove it if there are none; whether the lab has a switch.

        :param fault: its identifier.
        :param record: what :meth:`fault_records` gives for it.
        """
        return cast(bool, self._execute(faults.Put(self._api, lab, fault, record, rules)))

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


class _Write(command.BaseCommand):  # type: ignore[misc]
    """Rows in a transaction; a row to which several others refer is inserted once."""

    def __init__(self, api: Any) -> None:
        super().__init__(api)
        self._made: dict[Row, Any] = {}

    def insert(self, txn: Any, row: Row) -> Any:
        """Insert a row and those that it refers to."""
        if row not in self._made:
            columns = {name: self._value(txn, value) for name, value in row.columns.items()}
            made = self._made[row] = txn.insert(self.api.tables[row.table])
            for name, value in columns.items():
                setattr(made, name, value)
        return self._made[row]

    def _value(self, txn: Any, value: Any) -> Any:
        if isinstance(value, list):
            return [self.insert(txn, one) if isinstance(one, Row) else one for one in value]
        return value


class _Apply(_Write):
    """Write a lab's rows instead of those that it has; one transaction.

    The plan's routes to pod networks stay, and faults on purpose.
    """

    def __init__(self, api: Any, topology: Topology) -> None:
        super().__init__(api)
        self.topology = topology

    def run_idl(self, txn: Any) -> None:
        self._made.clear()  # a transaction that met another one is tried again
        top, wanted = self.topology, rows.of(self.topology)
        lab, plan = top.external_ids[tags.KEY], top.external_ids[tags.KEY_PLAN]
        kept = [
            rows.route(route.ip_prefix, route.nexthop, dict(route.external_ids))
            for route in _pod_routes(self.api, lab)
            if route.external_ids.get(tags.KEY_PLAN) == plan
        ]
        broken = faults.kept(self.api, lab)
        _delete(self.api, lab)
        external = _external_switch(self.api, top.external_switch)
        for row in wanted.roots:
            made = self.insert(txn, row)
            if row.table == "Logical_Switch":
                faults.insert(txn, self.api, made, broken)
            if row.table == "Logical_Router":
                made.static_routes = [*made.static_routes, *(self.insert(txn, route) for route in kept)]
        for port in wanted.external:
            external.addvalue("ports", self.insert(txn, port))


class _Count(command.BaseCommand):  # type: ignore[misc]
    """Raise the database's sequence number, which northd and the controllers report when they have followed."""

    def run_idl(self, txn: Any) -> None:  # noqa: ARG002
        (row,) = self.api.tables["NB_Global"].rows.values()
        row.verify("nb_cfg")
        self.result = row.nb_cfg = row.nb_cfg + 1


class _PodRoutes(_Write):
    """Replace a lab's routes to pod networks; one transaction."""

    def __init__(self, api: Any, lab: str, routes: dict[str, str]) -> None:
        super().__init__(api)
        self.lab = lab
        self.routes = routes

    def run_idl(self, txn: Any) -> None:
        self._made.clear()
        for router in self.api.tables["Logical_Router"].rows.values():
            if router.external_ids.get(tags.KEY) != self.lab:
                continue
            for route in router.static_routes:
                if POD_ROUTE in route.external_ids:
                    router.delvalue("static_routes", route)
            for network, hop in self.routes.items():
                made = rows.route(network, hop, {**router.external_ids, POD_ROUTE: "true"})
                router.addvalue("static_routes", self.insert(txn, made))


class _Remove(command.BaseCommand):  # type: ignore[misc]
    """Delete a lab's rows; one transaction."""

    def __init__(self, api: Any, lab: str) -> None:
        super().__init__(api)
        self.lab = lab

    def run_idl(self, txn: Any) -> None:  # noqa: ARG002
        self.result = _delete(self.api, self.lab)


def _pod_routes(api: Any, lab: str) -> list[Any]:
    """The rows of a lab's routes to pod networks."""
    return [
        route
        for router in api.tables["Logical_Router"].rows.values()
        if router.external_ids.get(tags.KEY) == lab
        for route in router.static_routes
        if POD_ROUTE in route.external_ids
    ]


def _delete(api: Any, lab: str) -> bool:
    deleted = False
    for switch in api.tables["Logical_Switch"].rows.values():
        if switch.external_ids.get(tags.KEY) == lab:
            continue  # it is deleted as a whole below
        for port in switch.ports:
            if port.external_ids.get(tags.KEY) == lab:
                switch.delvalue("ports", port)
                deleted = True
    for table in _tables(api):
        for row in list(table.rows.values()):
            if row.external_ids.get(tags.KEY) == lab:
                row.delete()
                deleted = True
    return deleted


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
