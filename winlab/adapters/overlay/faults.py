"""Injected faults among a lab's rows: rules of its logical switch, which external_ids identify.

They belong to the switch and are removed with it when the lab goes. OVN's meters drop what is above a rate on both
datapaths. Source: ovn-nb(5), tables ACL and QoS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ovsdbapp.backend.ovs_idl import command

from winlab.adapters.overlay.rows import Row
from winlab.design.fault.base import SwitchRule
from winlab.design.plan import tags

KEY_ID, KEY_RECORD = "winlab-fault", "winlab-fault-record"  # in external_ids
COLUMNS = {"ACL": "acls", "QoS": "qos_rules"}  # of a switch, by the table whose rows they name
FIRST = 32000  # the priority of what drops packets: before rules that a user may have added


def rows(rules: Sequence[SwitchRule], ids: dict[str, str]) -> list[Row]:
    """Rules as rows of the database."""
    made = []
    for rule in rules:
        what = {"match": rule.match, "direction": rule.direction, "external_ids": ids}
        if rule.kbit:
            more: dict[str, Any] = {"bandwidth": {"rate": rule.kbit}, "priority": rule.priority}
            made.append(Row("QoS", {**what, **more}))
        else:
            made.append(Row("ACL", {**what, "action": "drop", "priority": FIRST}))
    return made


def there(api: Any, lab: str) -> list[tuple[Any, str, Any]]:
    """The rows of a lab's faults, each with its switch and the column that names it."""
    return [
        (switch, column, row)
        for switch in api.tables["Logical_Switch"].rows.values()
        if switch.external_ids.get(tags.KEY) == lab
        for column in COLUMNS.values()
        for row in getattr(switch, column)
        if KEY_ID in row.external_ids
    ]


def records(api: Any, lab: str) -> list[str]:
    """What the rows say about themselves, once for each fault."""
    return sorted({row.external_ids.get(KEY_RECORD, "") for _, _, row in there(api, lab)})


def insert(txn: Any, api: Any, switch: Any, made: Sequence[Row]) -> None:
    """Add rows to a switch."""
    for row in made:
        new = txn.insert(api.tables[row.table])
        for name, value in row.columns.items():
            setattr(new, name, value)
        switch.addvalue(COLUMNS[row.table], new)


class Put(command.BaseCommand):  # type: ignore[misc]
    """Replace a fault's rows, in one transaction. No rules: the fault is removed.

    The result is whether the lab has a switch.
    """

    def __init__(self, api: Any, lab: str, fault: str, record: str, rules: Sequence[SwitchRule]) -> None:
        super().__init__(api)
        self.lab = lab
        self.fault = fault
        self.made = rows(rules, {tags.KEY: lab, KEY_ID: fault, KEY_RECORD: record})

    def run_idl(self, txn: Any) -> None:
        """Write the rows."""
        for switch, column, row in there(self.api, self.lab):
            if row.external_ids[KEY_ID] == self.fault:
                switch.delvalue(column, row)
        switches = [
            one for one in self.api.tables["Logical_Switch"].rows.values() if one.external_ids.get(tags.KEY) == self.lab
        ]
        for switch in switches:
            insert(txn, self.api, switch, self.made)
        self.result = bool(switches)
