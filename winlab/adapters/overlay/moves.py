"""Which hosts may have a node's port while its machine moves: options of its logical switch port.

With two hosts and ``activation-strategy=rarp`` the second one stays silent until QEMU there announces the machine. So
no packet comes twice, and the hosts do not fight for the port. Source: ovn-nb(5), "Options for VIF ports".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ovsdbapp.backend.ovs_idl import command

CHASSIS, STRATEGY = "requested-chassis", "activation-strategy"


def options(chassis: Sequence[str]) -> dict[str, str]:
    """The options that give a port to hosts; none: to the one that has its interface, as usual."""
    if not chassis:
        return {}
    return {CHASSIS: ",".join(chassis), **({STRATEGY: "rarp"} if len(chassis) > 1 else {})}


class Give(command.BaseCommand):  # type: ignore[misc]
    """Give a port to hosts, by its name and their chassis. The result is whether there is such a port."""

    def __init__(self, api: Any, port: str, chassis: Sequence[str]) -> None:
        super().__init__(api)
        self.port = port
        self.wanted = options(chassis)

    def run_idl(self, _txn: Any) -> None:
        """Write the options; others stay."""
        rows = [row for row in self.api.tables["Logical_Switch_Port"].rows.values() if row.name == self.port]
        for row in rows:
            for key in (CHASSIS, STRATEGY):
                if key in self.wanted:
                    row.setkey("options", key, self.wanted[key])
                elif key in row.options:
                    row.delkey("options", key)
        self.result = bool(rows)
