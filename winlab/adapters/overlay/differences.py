"""How a lab's network differs from its plan, row by row, and the change that repairs exactly that.

Rows are matched by what identifies them in their table, so that a changed column is reported as such. A row without
winlab's tag is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from winlab.adapters.overlay.faults import KEY_ID
from winlab.adapters.overlay.rows import POD_ROUTE, LabRows, Row
from winlab.design.plan import tags

# The columns that identify a row for people, by table; a lab has one row of DNS
IDENTITY = {
    "NAT": ("type", "external_ip", "logical_ip"),
    "Logical_Router_Policy": ("priority", "match"),
    "ACL": ("direction", "priority", "match"),
    "Logical_Router_Static_Route": ("ip_prefix",),
    "Load_Balancer_Health_Check": ("vip",),
    "DHCP_Options": ("cidr",),
    "DNS": (),
}
# The columns with rows that belong to the row alone. Rows that others refer to are compared as roots of their own
OWNED = ("ports", "acls", "nat", "policies", "static_routes", "gateway_chassis", "health_check")


@dataclass(frozen=True)
class Difference:
    """A row or a column that is not as planned.

    ``expected`` is empty for a row that should not be there, ``actual`` for one that is missing. A row that winlab did
    not make is ``foreign``.
    """

    what: str
    expected: str
    actual: str
    foreign: bool = False


@dataclass(frozen=True)
class Matched:
    """Wanted rows and those of the database: the pairs that are the same row, and the rest of both."""

    pairs: tuple[tuple[Row, Any], ...]
    missing: tuple[Row, ...]
    surplus: tuple[Any, ...]


def match(wanted: Iterable[Any], there: Iterable[Any]) -> Matched:
    """Find each wanted row among those of the database, first among the lab's own.

    Routes to pods and the rules of injected faults are left out.
    """
    left: dict[str, list[Any]] = {}
    for real in sorted(there, key=lambda real: (tags.KEY not in real.external_ids, str(real.uuid))):
        if POD_ROUTE not in real.external_ids and KEY_ID not in real.external_ids:
            left.setdefault(name(real), []).append(real)
    pairs, missing = [], []
    for row in wanted:
        same = left.get(name(row))
        if same:
            pairs.append((row, same.pop(0)))
        else:
            missing.append(row)
    return Matched(tuple(pairs), tuple(missing), tuple(real for same in left.values() for real in same))


def of(wanted: LabRows, roots: Iterable[Any], external: Iterable[Any]) -> list[Difference]:
    """All differences of a lab's rows.

    :param roots: the lab's rows in the database's root tables.
    :param external: its ports on the external switch.
    """
    return [*_differences(wanted.roots, roots), *_differences(wanted.external, external)]


def _differences(wanted: Iterable[Any], there: Iterable[Any]) -> Iterator[Difference]:
    matched = match(wanted, there)
    for row in matched.missing:
        yield Difference(name(row), "there", "")
    for real in matched.surplus:
        yield Difference(name(real), "", "there", foreign=tags.KEY not in real.external_ids)
    for row, real in matched.pairs:
        for column, value in row.columns.items():
            if column in OWNED:
                yield from _differences(value, getattr(real, column))
            elif (expected := shown(value)) != (actual := shown(planned(getattr(real, column)))):
                yield Difference(f"{name(row)}: {column}", expected, actual or "none")


def planned(value: Any) -> Any:
    """A database value without the part that no plan decides: who made the lab."""
    return {key: one for key, one in value.items() if key != tags.KEY_UID} if isinstance(value, dict) else value


def name(row: Any) -> str:
    """What identifies a row, wanted or of the database: its table, and some of its columns."""
    table, columns = _parts(row)
    return " ".join((table, *(shown(columns(one)) for one in IDENTITY.get(table, ("name",)))))


def shown(value: Any) -> str:
    """A value, wanted or of the database, as text. The database does not distinguish one value from a set of one."""
    if isinstance(value, Row) or hasattr(value, "_table"):
        return name(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={value[key]}" for key in sorted(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(sorted(shown(one) for one in value))
    return str(value)


def _parts(row: Any) -> tuple[str, Any]:
    if isinstance(row, Row):
        return row.table, row.columns.__getitem__
    return row._table.name, lambda column: getattr(row, column)
