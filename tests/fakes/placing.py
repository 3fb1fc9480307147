"""Plans at sites with several hypervisors, which have as much as a test says."""

from __future__ import annotations

from typing import Any

import plans

from winlab.design import spec
from winlab.design.plan.facts import MachineFacts
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.make import make
from winlab.design.plan.model import Plan

GIB = 1024  # MiB
LINUX = ("workers.os=debian-13",)
SITE = plans.KVM.model_copy(update={"tunnel_mtu": 1442})


def host(name: str, free: int = 16, **changes: Any) -> HostStock:
    """A hypervisor with *free* of 32 GiB."""
    given: dict[str, Any] = {
        "facts": MachineFacts(chassis=name), "memory_mib": 32 * GIB, "free_mib": free * GIB, "cores": 8,
        "pool_free": 200 << 30,
    }  # fmt: skip
    return HostStock(name=name, **{**given, **changes})


def hosts(*free: int) -> tuple[HostStock, ...]:
    return tuple(host(f"hypervisor-{number}", gib) for number, gib in enumerate(free, 1))


def plan(source: str, *changed: str, at: tuple[HostStock, ...], standing: tuple[Plan, ...] = (), **more: Any) -> Plan:
    wanted = spec.load(source, [*LINUX, *changed])
    stock = plans.stock(wanted).model_copy(update={"hypervisors": at})
    return make(wanted, "lab", more.get("facts", SITE), stock, standing=standing, again=more.get("again", {}))


def where(made: Plan) -> dict[str, str]:
    return {node.name: node.hypervisor for node in made.nodes}
