"""Plans for tests: fixed host facts, fixed image keys."""

from __future__ import annotations

import hashlib

import pytest

from winlab.design import spec
from winlab.design.plan import golden
from winlab.design.plan import model as plan
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.supply.images import cache

TCG = HostFacts(
    recorded=True, accelerator="tcg", datapath="netdev", chassis="chassis-1", emulator_version="7.2.0",
    resolvers=["192.0.2.53"],
)  # fmt: skip
KVM = HostFacts(
    recorded=True, accelerator="kvm", datapath="system", chassis="chassis-1", emulator_version="9.2.0",
    resolvers=["192.0.2.53"],
)  # fmt: skip


def fixed_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache keys depend on the builders' sources; golden files shall not."""
    monkeypatch.setattr(golden, "programs", lambda: "programs")
    monkeypatch.setattr(cache, "key", lambda recipe: hashlib.sha256(recipe.name.encode()).hexdigest())


def make(facts: HostFacts, source: str = "1-1-1", *changes: str, lab: str = "lab") -> Plan:
    return plan.make(spec.load(source, changes), lab, facts)
