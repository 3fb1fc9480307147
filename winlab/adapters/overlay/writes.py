"""The changes to OVN's northbound database, each one transaction: all or nothing. Also, the existing rows of a lab.

Source: ovn-nb(5). Rows of root tables (switches, routers, DHCP options, DNS) are deleted by tag, together with the rows
that belong to them.
"""

from __future__ import annotations

from typing import Any

from ovsdbapp.backend.ovs_idl import command

from winlab import account
from winlab.adapters.overlay import differences, registry, rows
from winlab.adapters.overlay.rows import POD_ROUTE, Row
from winlab.design.plan import tags
from winlab.design.render.topology import Topology
from winlab.errors import HostError


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


class Apply(_Write):
    """Make a lab's rows match the wanted ones by changing what differs; one transaction.

    Deleting a switch or router and making it again would break the connections of running guests: OVN identifies it by
    its row. Routes to pod networks, injected faults, and rows without winlab's tag stay.
    """

    def __init__(self, api: Any, topology: Topology) -> None:
        super().__init__(api)
        self.topology = topology

    def run_idl(self, txn: Any) -> None:
        """Write the rows."""
        wanted = rows.of(self.topology, registry.chassis(self.api))
        roots, ports = there(self.api, self.topology)
        matched = differences.match(wanted.roots, roots)
        self._made = dict(matched.pairs)  # others refer to these; after a conflict, the transaction is retried
        for row in matched.missing:
            new = self.insert(txn, row)
            if row.table == "Logical_Switch":
                new.external_ids = {**row.columns["external_ids"], tags.KEY_UID: str(account.uid())}
        for row, real in matched.pairs:
            self._align(txn, row, real)
        for real in matched.surplus:
            real.delete()
        external = _external_switch(self.api, self.topology.external_switch)
        matched = differences.match(wanted.external, ports)
        for row in matched.missing:
            external.addvalue("ports", self.insert(txn, row))
        for row, real in matched.pairs:
            self._align(txn, row, real)
        for real in matched.surplus:
            external.delvalue("ports", real)
        for route in pod_routes(self.api, self.topology.external_ids[tags.KEY]):
            if route.external_ids != (ids := {**route.external_ids, **self.topology.external_ids}):
                route.external_ids = ids

    def _align(self, txn: Any, row: Row, real: Any) -> None:
        """Make a row of the database match the wanted one, with the rows that belong to it."""
        for column, value in row.columns.items():
            if column not in differences.OWNED:
                self._set(real, column, self._value(txn, value))
                continue
            matched = differences.match(value, getattr(real, column))
            for part in matched.missing:
                real.addvalue(column, self.insert(txn, part))
            for part, there in matched.pairs:
                self._align(txn, part, there)
            for there in matched.surplus:
                if tags.KEY in there.external_ids:
                    real.delvalue(column, there)

    def _set(self, real: Any, column: str, value: Any) -> None:
        """Set a column if that changes it. If two rows have the same name, a reference means one of them."""
        there = getattr(real, column)
        if isinstance(value, list) and any(hasattr(one, "uuid") for one in value):
            same = {one.uuid for one in value} == {one.uuid for one in _listed(there)}
        else:
            same = differences.shown(value) == differences.shown(differences.planned(there))
        if not same and isinstance(value, dict) and tags.KEY_UID in there:
            value = {**value, tags.KEY_UID: there[tags.KEY_UID]}
        if not same:
            setattr(real, column, value)


class Count(command.BaseCommand):  # type: ignore[misc]
    """Raise the database's sequence number, which northd and the controllers report when they have followed."""

    def run_idl(self, txn: Any) -> None:  # noqa: ARG002
        """Write the rows."""
        row = next(iter(self.api.tables["NB_Global"].rows.values()), None)
        if row is None:
            raise HostError(
                "OVN's northd has not begun to use the northbound database.",
                why="The table NB_Global has no row, which northd makes when it starts.",
                cure="Run 'sudo winlab host setup'.",
            )
        row.verify("nb_cfg")
        self.result = row.nb_cfg = row.nb_cfg + 1


class PodRoutes(_Write):
    """Replace a lab's routes to pod networks; one transaction."""

    def __init__(self, api: Any, lab: str, routes: dict[str, str]) -> None:
        super().__init__(api)
        self.lab = lab
        self.routes = routes

    def run_idl(self, txn: Any) -> None:
        """Write the rows."""
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


class Remove(command.BaseCommand):  # type: ignore[misc]
    """Delete a lab's rows; one transaction."""

    def __init__(self, api: Any, lab: str) -> None:
        super().__init__(api)
        self.lab = lab

    def run_idl(self, txn: Any) -> None:  # noqa: ARG002
        """Write the rows."""
        self.result = _delete(self.api, self.lab)


def pod_routes(api: Any, lab: str) -> list[Any]:
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
    for router in api.tables["Logical_Router"].rows.values():
        if router.external_ids.get(tags.KEY) == lab:
            for nat in router.nat:
                if nat.exempted_ext_ips:  # the database counts this reference even as the router goes with its rows
                    nat.exempted_ext_ips = []
    for table in tables(api):
        for row in list(table.rows.values()):
            if row.external_ids.get(tags.KEY) == lab:
                row.delete()
                deleted = True
    return deleted


def there(api: Any, topology: Topology) -> tuple[list[Any], list[Any]]:
    """The lab's rows in root tables, and its ports on the external switch."""
    lab = topology.external_ids[tags.KEY]
    switches = api.tables["Logical_Switch"].rows.values()
    ports = [port for row in switches if row.name == topology.external_switch for port in row.ports]
    return (
        [row for table in tables(api) for row in table.rows.values() if row.external_ids.get(tags.KEY) == lab],
        [port for port in ports if port.external_ids.get(tags.KEY) == lab],
    )


def _listed(value: Any) -> list[Any]:
    """The values of a column: the database does not distinguish one value from a set of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def tables(api: Any) -> list[Any]:
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
