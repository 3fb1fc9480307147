"""The adapter to OVN's northbound database. Each change of a lab's network is one transaction: all or nothing.

Source: ovn-nb(5) for tables and columns, ovsdbapp for the protocol.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from ovsdbapp.backend.ovs_idl import command, connection
from ovsdbapp.exceptions import TimeoutException
from ovsdbapp.schema.ovn_northbound import impl_idl

from winlab import settings
from winlab.adapters.overlay import differences, faults, moves, registry, rows, southbound, writes
from winlab.adapters.overlay.differences import Difference
from winlab.adapters.registered import PREFIX
from winlab.adapters.remote import forwarded
from winlab.design.fault.base import SwitchRule
from winlab.design.plan import lab_name, tags
from winlab.design.render.topology import Topology
from winlab.errors import AccessError, ConflictError, HostError, WinlabError

TIMEOUT = 20  # seconds for one transaction
POLL = 0.1  # seconds between two reads of a sequence number
ASK = 2.0  # seconds before the southbound database is queried, and between two queries


P = ParamSpec("P")
T = TypeVar("T")


def _reads(method: Callable[Concatenate[Northbound, P], T]) -> Callable[Concatenate[Northbound, P], T]:
    """Have the rows stay as they are while a method reads them: others change them at the same time."""

    @functools.wraps(method)
    def read(self: Northbound, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._api.ovsdb_connection.lock:
            return method(self, *args, **kwargs)

    return read


class Northbound:
    """A connection to the northbound database."""

    def __init__(self, api: Any) -> None:
        self._api = api

    @_reads
    def lab_plan(self, lab: str) -> str | None:
        """The digest of the plan that the lab's switch was made from; None if there is no switch."""
        for row in self._api.tables["Logical_Switch"].rows.values():
            if row.external_ids.get(tags.KEY) == lab:
                return cast(str, row.external_ids.get(tags.KEY_PLAN, ""))
        return None

    @_reads
    def lab_owner(self, lab: str) -> int | None:
        """The id of the user who made the lab's switch; None if there is no switch, or it does not say."""
        for row in self._api.tables["Logical_Switch"].rows.values():
            if row.external_ids.get(tags.KEY) == lab:
                uid = row.external_ids.get(tags.KEY_UID, "")
                return int(uid) if uid.isascii() and uid.isdigit() else None
        return None

    def has(self, topology: Topology) -> bool:
        """Whether the lab's network is this one: every row and every column that :meth:`apply` writes."""
        return all(one.foreign for one in self.differences(topology))

    @_reads
    def differences(self, topology: Topology) -> list[Difference]:
        """How the lab's network differs from what :meth:`apply` would write."""
        wanted = rows.of(topology, registry.chassis(self._api))
        return differences.of(wanted, *writes.there(self._api, topology))

    @_reads
    def ports_up(self, lab: str) -> dict[str, bool]:
        """The names of the lab's logical switch ports for machines, and whether a controller has bound each."""
        return {
            port.name: port.up == [True] or port.up is True
            for switch in self._api.tables["Logical_Switch"].rows.values()
            if switch.external_ids.get(tags.KEY) == lab
            for port in switch.ports
            if not port.type
        }

    def await_followers(self, seconds: float, chassis: str = "") -> None:
        """Wait until northd and the controllers have processed everything written so far, as ``--wait=hv`` does.

        :param chassis: the one that counts, by its name, if this account may ask the southbound database: another
            hypervisor may be off. Otherwise all count.
        :raises HostError: they have not, within that time.
        """
        number = self._execute(writes.Count(self._api))
        end, ask = time.monotonic() + seconds, time.monotonic() + ASK
        while True:
            northd, controllers = self._followed()
            if controllers >= number:
                return
            late = time.monotonic() > end
            if chassis and northd >= number and (late or time.monotonic() > ask):
                ask = time.monotonic() + ASK
                if southbound.progress(chassis) >= number:
                    return
            if late:
                break
            time.sleep(POLL)
        who = "OVN's northd does" if northd < number else "OVN's controller (or one of several) does"
        raise HostError(
            f"{who} not follow the northbound database.",
            why=f"Changes of labs' networks were not processed within {seconds:.0f} s.",
            cure="Run 'sudo winlab host setup'. If that does not help, look for a hypervisor that is gone in "
            "'ovn-sbctl show', and remove it with 'ovn-sbctl chassis-del'.",
            evidence="/var/log/ovn/ovn-northd.log and ovn-controller.log",
        )

    @_reads
    def _followed(self) -> tuple[int, int]:
        """The sequence numbers up to which northd and all controllers have followed."""
        (row,) = self._api.tables["NB_Global"].rows.values()
        return row.sb_cfg, row.hv_cfg

    @_reads
    def labs(self) -> set[str]:
        """The labs that have any row, without the host's own ("host")."""
        return {
            row.external_ids[tags.KEY]
            for table in writes.tables(self._api)
            for row in table.rows.values()
            if tags.KEY in row.external_ids
        } - {tags.HOST}

    @_reads
    def described(self, lab: str) -> dict[str, list[dict[str, Any]]]:
        """All rows of a lab and of the host with every column, by table; references are UUIDs.

        Also the database's sequence numbers, which show whether the daemons follow it.
        """
        made: dict[str, list[dict[str, Any]]] = {}
        for name, table in sorted(self._api.tables.items()):
            rows = [row for row in table.rows.values() if name == "NB_Global" or _owner(row) in (lab, tags.HOST)]
            if rows:
                columns = [column for column in table.columns if column in rows[0]._data]
                made[name] = [
                    {"_uuid": str(row.uuid), **{column: _readable(getattr(row, column)) for column in columns}}
                    for row in rows
                ]
        return made

    def apply(self, topology: Topology) -> None:
        """Make the lab's network, or change what differs: machines keep using the rest. Rows of others stay.

        :raises ConflictError: another lab has one of its external addresses.
        :raises HostError: the host has no external switch, because it was not set up.
        """
        self.require_free(topology)
        try:
            self._execute(writes.Apply(self._api, topology))
        except HostError as error:
            # another lab has just taken a block; the database refuses a second port with the name of its claim
            if claim := next((name for name in topology.claims if f"({name})" in error.why), None):
                raise _taken(topology, *(self.holder(topology) or ("another one", claim))) from error
            raise

    def require_free(self, topology: Topology) -> None:
        """Check that no other lab has one of the external addresses.

        :raises ConflictError: one has.
        """
        if (holder := self.holder(topology)) is not None:
            raise _taken(topology, *holder)

    @_reads
    def holder(self, topology: Topology) -> tuple[str, str] | None:
        """The other lab that has one of the external addresses, and what it has; None if they are free."""
        lab = topology.external_ids[tags.KEY]
        wanted = {nat.external for nat in topology.nats}
        for owner, taken in self._outside(lab):
            if both := sorted(wanted & taken):
                return owner, both[0]
        for port in self._api.tables["Logical_Switch_Port"].rows.values():
            owner = port.external_ids.get(tags.KEY, "")
            if port.name in topology.claims and owner != lab:
                return owner, port.name
        return None

    @_reads
    def taken(self, lab: str) -> set[str]:
        """The external and inner addresses that the routers of all other labs have or translate to."""
        return {address for _, some in self._outside(lab) for address in some}

    def _outside(self, lab: str) -> Iterator[tuple[str, set[str]]]:
        """The other labs, and the addresses that their routers have and translate to."""
        for router in self._api.tables["Logical_Router"].rows.values():
            owner = router.external_ids.get(tags.KEY, router.name)
            if owner != lab:
                taken = {row.external_ip for row in router.nat}
                yield owner, taken | {network.split("/")[0] for port in router.ports for network in port.networks}

    @_reads
    def pod_routes(self, lab: str) -> dict[str, str]:
        """The routes to pod networks on the lab's router: network to next hop."""
        return {route.ip_prefix: route.nexthop for route in writes.pod_routes(self._api, lab)}

    def set_pod_routes(self, lab: str, routes: dict[str, str]) -> None:
        """Make these the only routes to pod networks on the lab's router."""
        self._execute(writes.PodRoutes(self._api, lab, routes))

    @_reads
    def fault_records(self, lab: str) -> list[str]:
        """What the lab's injected faults say about themselves, one text each."""
        return faults.records(self._api, lab)

    def put_fault(self, lab: str, fault: str, record: str, rules: Sequence[SwitchRule]) -> bool:
        """Set the rules of an injected fault, or remove it if there are none; whether the lab has a switch.

        :param fault: its identifier.
        :param record: what :meth:`fault_records` gives for it.
        """
        return cast(bool, self._execute(faults.Put(self._api, lab, fault, record, rules)))

    @_reads
    def hypervisors(self) -> dict[str, str]:
        """What is recorded of the site's other hypervisors, by their names: texts that anyone may have written."""
        return registry.texts(self._api)

    def put_hypervisor(self, name: str, text: str | None) -> None:
        """Record a hypervisor, or remove its record if there is no text."""
        self.record({PREFIX + name: text})

    @_reads
    def records(self, prefix: str) -> dict[str, str]:
        """What is recorded of the site under keys that begin with *prefix*: texts that anyone may have written."""
        return registry.below(self._api, prefix)

    def record(self, texts: Mapping[str, str | None]) -> None:
        """Record texts of the site by their keys, and remove the records that have none; all or nothing."""
        self._execute(registry.Put(self._api, texts))

    @_reads
    def gateways_on(self, chassis: str) -> list[str]:
        """The labs whose routers name a host as a possible gateway, sorted."""
        rows = self._api.tables["Gateway_Chassis"].rows.values()
        return sorted({lab for row in rows if row.chassis_name == chassis and (lab := _owner(row))})

    @_reads
    def drained(self) -> frozenset[str]:
        """The names of the hypervisors that take no new nodes."""
        return registry.drained(self._api)

    def set_drained(self, name: str, *, wanted: bool) -> None:
        """Record whether a hypervisor takes no new nodes."""
        self._execute(registry.Put(self._api, {registry.DRAINED + name: "yes" if wanted else None}))

    def give_port(self, port: str, chassis: Sequence[str] = ()) -> bool:
        """Give a node's port to hosts (:mod:`winlab.adapters.overlay.moves`); returns whether it exists."""
        return cast(bool, self._execute(moves.Give(self._api, port, chassis)))

    def remove(self, lab: str) -> bool:
        """Remove all rows of the lab; returns whether there were any."""
        return cast(bool, self._execute(writes.Remove(self._api, lab)))

    def _execute(self, write: command.BaseCommand) -> Any:
        try:
            return write.execute(check_error=True)
        except WinlabError:
            raise
        except TimeoutException as error:  # its text has all rows
            raise HostError(
                "OVN's northbound database does not answer.",
                why=f"It did not confirm a change within {TIMEOUT} s: the host is overloaded, or its server hangs.",
                cure="Run the same command again; it finds what was changed.",
                evidence="/var/log/ovn/ovsdb-server-nb.log",
            ) from error
        except Exception as error:  # ovsdbapp raises RuntimeError and others
            raise HostError(
                "OVN rejected a change of its northbound database.",
                why=str(error),
                cure="Run 'sudo winlab host setup', then the same command again; nothing was changed.",
                evidence="/var/log/ovn/ovsdb-server-nb.log",
            ) from error


def _owner(row: Any) -> str:
    """The lab in a row's tag; empty if it has none."""
    return str(getattr(row, "external_ids", {}).get(tags.KEY, ""))


def _readable(value: Any) -> Any:
    """A column's value as JSON can have it."""
    if isinstance(value, list):
        return [_readable(one) for one in value]
    return str(value.uuid) if hasattr(value, "_table") else value


def _taken(topology: Topology, owner: str, what: str) -> ConflictError:
    lab = topology.external_ids[tags.KEY]
    return ConflictError(
        f"The lab '{owner}' already has the external address or block {what}.",
        why="Both labs' names map to the same block of external addresses.",
        cure="Run the same command again: it takes another block."
        if lab.startswith(lab_name.GOLDEN)
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


@contextmanager
def connect(remote: str | None = None) -> Iterator[Northbound]:
    """Connect to the northbound database; *remote* in OVSDB's notation, default :func:`settings.northbound`.

    ``ssh://user@host/path`` is a socket of another host.

    :raises HostError: there is no database.
    :raises AccessError: this user may not use it.
    """
    remote = remote or settings.northbound()
    if remote.startswith("ssh:"):
        with forwarded(remote) as socket, connect(f"unix:{socket}") as northbound:
            yield northbound
        return
    if remote.startswith("unix:"):
        _check_socket(Path(remote.removeprefix("unix:")))
    try:
        idl = connection.OvsdbIdl.from_server(remote, "OVN_Northbound", leader_only=False)  # any member
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
                f"Permission denied: the OVN northbound socket '{path}'.",
                why=f"It is open to the group '{settings.GROUP}'.",
                cure=f"Run 'sudo usermod -aG {settings.GROUP} $USER' and log in again.",
            ) from error
        except OSError as error:
            raise HostError(
                f"The OVN northbound database behind '{path}' does not answer.",
                why=str(error),
                cure="Run 'sudo winlab host setup'.",
            ) from error
