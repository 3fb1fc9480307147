"""Faults as rows of OVN's tables; in a real database: tests/integration/test_ovn_adapter.py."""

from __future__ import annotations

from winlab.adapters.overlay import faults
from winlab.design.fault.base import SwitchRule

IDS = {"winlab": "lab"}


def test_drops_come_before_other_rules_and_slow_links_are_metered() -> None:
    dropped, slow = faults.rows([SwitchRule("ip4"), SwitchRule("ip4", "from-lport", 2000, 5)], IDS)
    assert (dropped.table, slow.table) == ("ACL", "QoS")
    assert dropped.columns == {
        "match": "ip4", "direction": "to-lport", "external_ids": IDS, "action": "drop", "priority": faults.FIRST,
    }  # fmt: skip
    assert slow.columns == {
        "match": "ip4", "direction": "from-lport", "external_ids": IDS, "bandwidth": {"rate": 2000}, "priority": 5,
    }  # fmt: skip
    assert set(faults.COLUMNS) == {"ACL", "QoS"}
