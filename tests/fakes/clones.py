"""Plans with clones of golden images, and golden images in the cache, for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import disks
import plans

from winlab.design.plan import golden
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.render.topology import Topology
from winlab.events import Quiet
from winlab.supply.images import golden as golden_cache
from winlab.supply.images import stock

REHEARSAL = "workers.os=windows-rehearsal"


def make(*changes: str, lab_name: str = "lab", source: str = "1-2-1") -> Plan:
    return plans.make(plans.TCG, source, *changes, lab=lab_name)


def clone(plan: Plan) -> WindowsNode:
    node = plan.node("node-1")
    assert isinstance(node, WindowsNode)
    return node


def keep(
    plan: Plan, *, days: int | None = 90, programs: str | None = None, build: str = "20348.2762"
) -> golden_cache.Golden:
    node = clone(plan)
    ends = None if days is None else (datetime.now(UTC) + timedelta(days=days, minutes=5)).isoformat()

    def fill(output: Path) -> dict[str, Any]:
        output.write_bytes(disks.qcow2(b"a disk"))
        return {
            "build": build,
            "evaluation_ends": ends,
            "programs": programs or stock.scripts(),
            "inputs": golden.told(plan.builders[0].nodes[0], Stock(scripts="scripts")) if plan.builders else {},
            "medium": plan.builders[0].nodes[0].volume("base").name if plan.builders else None,
        }

    return golden_cache.keep(node, str(node.windows.golden), fill, Quiet())


class Network:
    """The northbound database, as far as a builder asks: blocks of other labs, and its own lab's rows."""

    def __init__(self, taken: set[str], standing: str | None = None) -> None:
        self.taken, self.standing = taken, standing

    def lab_plan(self, _lab: str) -> str | None:
        return self.standing

    def holder(self, top: Topology) -> tuple[str, str] | None:
        return next((("other", claim) for claim in top.claims if claim in self.taken), None)
