"""Differences of a lab's rows from the plan, without a database; with one: tests/integration/test_ovn_adapter.py."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import plans
import pytest

from winlab.adapters.overlay import differences, rows
from winlab.adapters.overlay.differences import Difference
from winlab.adapters.overlay.rows import LabRows, Row
from winlab.design.render.topology import topology

FOREIGN: dict[str, str] = {}  # external_ids of other tools


class Stored:
    """A lab's rows as a database has them: each once, even if several rows refer to it."""

    def __init__(self, wanted: LabRows) -> None:
        self.wanted = wanted
        self._made: dict[int, Any] = {}
        self.roots = [self.row(row) for row in wanted.roots]
        self.external = [self.row(row) for row in wanted.external]

    def row(self, row: Row) -> Any:
        if id(row) not in self._made:
            columns = {name: self._value(value) for name, value in row.columns.items()}
            made = SimpleNamespace(_table=SimpleNamespace(name=row.table), uuid=len(self._made), **columns)
            self._made[id(row)] = made
        return self._made[id(row)]

    def _value(self, value: Any) -> Any:
        if isinstance(value, Row):
            return [self.row(value)]  # a reference is a set of one
        if isinstance(value, list):
            return [self.row(one) if isinstance(one, Row) else one for one in value]
        return dict(value) if isinstance(value, dict) else value

    def of(self, table: str) -> Iterator[Any]:
        return (row for row in self.roots if row._table.name == table)

    def differences(self) -> list[Difference]:
        return differences.of(self.wanted, self.roots, self.external)


@pytest.fixture
def stored() -> Stored:
    return Stored(rows.of(topology(plans.make(plans.KVM, "3-2-1"))))  # three controllers have a load balancer


def test_rows_as_planned_do_not_differ(stored: Stored) -> None:
    assert stored.differences() == []


def test_a_column_is_reported_with_both_values(stored: Stored) -> None:
    (switch,) = stored.of("Logical_Switch")
    expected = differences.shown(switch.other_config)
    switch.other_config = {"mcast_snoop": "true"}
    what = f"Logical_Switch {switch.name}: other_config"
    assert stored.differences() == [Difference(what, expected, "mcast_snoop=true")]
    switch.other_config = {}
    assert stored.differences() == [Difference(what, expected, "none")]


def test_another_value_of_what_identifies_a_row_makes_it_another_row(stored: Stored) -> None:
    (router,) = stored.of("Logical_Router")
    nat = next(one for one in router.nat if one.type == "snat")
    wanted = differences.name(nat)
    nat.logical_ip = "10.1.0.0/16"
    there = f"NAT snat {nat.external_ip} 10.1.0.0/16"
    assert stored.differences() == [Difference(wanted, "there", ""), Difference(there, "", "there")]


def test_a_missing_child_row_is_reported_alone(stored: Stored) -> None:
    (switch,) = stored.of("Logical_Switch")
    gone = switch.ports.pop()
    assert stored.differences() == [Difference(f"Logical_Switch_Port {gone.name}", "there", "")]


def test_a_row_of_another_tool_is_unknown_and_a_leftover_is_not(stored: Stored) -> None:
    (router,) = stored.of("Logical_Router")
    one = router.policies[0]
    for number, ids in ((1, FOREIGN), (2, one.external_ids)):
        extra = SimpleNamespace(**{**vars(one), "priority": number, "external_ids": ids, "uuid": f"x{number}"})
        router.policies.append(extra)
    assert [(row.what.split()[1], row.foreign) for row in stored.differences()] == [("2", False), ("1", True)]


def test_of_two_equal_rows_the_lab_s_own_counts(stored: Stored) -> None:
    (dhcp,) = stored.of("DHCP_Options")
    stored.roots.insert(0, SimpleNamespace(**{**vars(dhcp), "external_ids": FOREIGN, "options": {}, "uuid": "0"}))
    (found,) = stored.differences()
    assert found == Difference(differences.name(dhcp), "", "there", foreign=True)


def test_routes_to_pods_are_not_a_difference(stored: Stored) -> None:
    (router,) = stored.of("Logical_Router")
    ids = {**router.external_ids, rows.POD_ROUTE: "node-1"}
    router.static_routes.append(stored.row(rows.route("10.244.1.0/24", "10.77.0.101", ids)))
    assert stored.differences() == []
