"""Plans for tests: fixed host facts, a fixed stock."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from winlab.design import spec
from winlab.design.plan import make as making
from winlab.design.plan.facts import HostFacts
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Material, Stock
from winlab.design.spec.model import Spec
from winlab.supply.images import stock as taking

TCG = HostFacts(
    recorded=True, accelerator="tcg", datapath="netdev", chassis="chassis-1", emulator_version="7.2.0",
    resolvers=["192.0.2.53"],
)  # fmt: skip
KVM = HostFacts(
    recorded=True, accelerator="kvm", datapath="system", chassis="chassis-1", emulator_version="9.2.0",
    resolvers=["192.0.2.53"],
)  # fmt: skip


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def stock(wanted: Spec, **changes: Any) -> Stock:
    """The available stock, with fixed keys; missing files that the spec names have their path as content."""
    pools = wanted.workers
    named = dict.fromkeys(("media", "drivers", "openssh", "files", "template")) | {"scripts": (), "extra_drivers": ()}
    taken = taking.take(wanted.model_copy(update={"workers": tuple(pool.model_copy(update=named) for pool in pools)}))
    single = [path for pool in pools for path in (pool.media, pool.drivers, pool.openssh, *pool.scripts) if path]
    folders = [path for pool in pools for path in (pool.files, *pool.extra_drivers) if path]
    files = {path: (Material(name=path.name, sha256=content(path)),) for path in single}
    for folder in folders:
        below = sorted(path for path in folder.rglob("*") if path.is_file())
        files[folder] = tuple(Material(name=str(one.relative_to(folder)), sha256=content(one)) for one in below)
    found: dict[str, Any] = {
        "images": {name: digest(name) for name in taken.images},
        "files": files,
        "templates": {pool.template: taking.own_template(pool.template) for pool in pools if pool.template},
        "paths": {content(path): path for path in single}
        | {one.sha256: folder / one.name for folder in folders for one in files[folder]},
        "scripts": "scripts",
    }
    return taken.model_copy(update={**found, **changes})


def content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else digest(str(path))


def make(facts: HostFacts, source: str = "1-1-1", *changes: str, lab: str = "lab", **at_hand: Any) -> Plan:
    wanted = spec.load(source, changes)
    return making.make(wanted, lab, facts, stock(wanted, **at_hand))
