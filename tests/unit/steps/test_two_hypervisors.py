"""A site of two hypervisors: each node's steps touch its own, and what a pool has is a state of that pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import plans
import pytest
import runs
import sites

from winlab.adapters.vm import definitions, domains
from winlab.design.plan import tags
from winlab.design.plan.facts import HYPERVISOR, MachineFacts
from winlab.design.plan.model import Plan
from winlab.engine import engine
from winlab.engine.run import Run
from winlab.engine.state import Kind, State
from winlab.errors import HostError
from winlab.events import Quiet
from winlab.steps import recipe, volumes
from winlab.steps.linux.system import LinuxSteps
from winlab.steps.sources import Supply
from winlab.steps.states import DISK, IMAGE, PAYLOAD, PAYLOAD_INSERTED

SECOND = "hypervisor-2"
POOLED = (IMAGE, PAYLOAD)


class Pool:
    """A pool that remembers what was written to it."""

    def __init__(self) -> None:
        self.written: list[str] = []

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.written if name.startswith(prefix)]

    def is_complete(self, name: str) -> bool:
        return name in self.written

    def create_disk(self, name: str, _capacity: int, backing: str) -> None:
        assert backing in self.written, "its base is in another pool"
        self.written.append(name)

    def upload_base(self, name: str, *_: object) -> None:
        self.written.append(name)

    def upload(self, name: str, _source: Path) -> None:
        self.written.append(name)


def split(*changes: str) -> Plan:
    """A lab whose second worker is on the second hypervisor."""
    plan = plans.make(plans.KVM, "1-2-1", *changes)
    moved = [node.model_copy(update={"hypervisor": SECOND}) if node.name == "node-2" else node for node in plan.nodes]
    return plan.model_copy(update={"nodes": tuple(moved)})


PLAN = split("workers.os=debian-13")


def begun(plan: Plan = PLAN) -> tuple[Run, Pool, Pool]:
    first, second = Pool(), Pool()
    hosts = [sites.hypervisor("first", first), sites.hypervisor("second", second, name=SECOND)]
    return runs.run(plan, hypervisors=hosts), first, second


def every(run: Run) -> dict[State, Any]:
    supply = Supply(cast(Any, None))
    steps = [*recipe.guests(run), *recipe.cluster(run, supply), *recipe.golden_upload(run, run.plan.builders)]
    if run.plan.builders:
        steps += recipe.golden_build(run, run.plan.builders, supply, alone=False)
    return {step.reaches: step for step in engine.compose(recipe.once(steps))}


def of_kind(steps: dict[State, Any], kind: Kind) -> list[State]:
    return [state for state in steps if state.kind == kind]


def test_a_node_is_on_its_own_hypervisor() -> None:
    run, first, second = begun()
    assert [run.on(node).name for node in PLAN.nodes] == [HYPERVISOR, HYPERVISOR, SECOND]
    assert [run.on(node).conn for node in PLAN.nodes] == ["first", "first", "second"]
    assert (run.on(PLAN.nodes[0]).pool, run.on(PLAN.nodes[2]).pool) == (first, second)
    assert [host.name for host in run.hosts(PLAN.nodes)] == [HYPERVISOR, SECOND]
    lost = PLAN.nodes[0].model_copy(update={"hypervisor": "hypervisor-3"})
    with pytest.raises(HostError, match="no hypervisor 'hypervisor-3'"):
        run.on(lost)


def test_each_pool_has_its_own_base_and_payload() -> None:
    run, _, _ = begun()
    steps = every(run)
    base = PLAN.nodes[0].volume("base").name
    assert of_kind(steps, IMAGE) == [IMAGE(of=base, host=HYPERVISOR), IMAGE(of=base, host=SECOND)]
    assert of_kind(steps, PAYLOAD) == [PAYLOAD(of="linux", host=HYPERVISOR), PAYLOAD(of="linux", host=SECOND)]
    for kind in POOLED:
        ours, other = of_kind(steps, kind)
        assert ours != other
        assert str(other) != str(ours) == str(ours._replace(host=""))  # as in the journals of labs with one hypervisor
        assert other.title == f"{ours.title} on {SECOND}"
        assert ours.title == ours._replace(host="").title
    for node in PLAN.nodes:
        disk, inserted = steps[DISK("lab", node.name)], steps[PAYLOAD_INSERTED("lab", node.name)]
        assert IMAGE(of=base, host=node.hypervisor) in disk.needs
        assert PAYLOAD(of="linux", host=node.hypervisor) in inserted.needs
        assert len([one for one in (*disk.needs, *inserted.needs) if one.host]) == 2


def test_uploads_to_several_hypervisors_do_not_stop_each_other() -> None:
    steps = every(begun()[0])
    assert {state.kind for state, step in steps.items() if step.finishes} == set(POOLED)
    alone = every(runs.run(plans.make(plans.KVM, "1-2-1")))
    assert not any(step.finishes for step in alone.values())


def test_a_golden_image_is_fetched_once_and_brought_to_each_pool_of_its_clones() -> None:
    run, _, _ = begun(split("workers.os=windows-2022"))
    steps = every(run)
    target = run.plan.node("node-1").volume("base").name
    ours, other = IMAGE(of=target, host=HYPERVISOR), IMAGE(of=target, host=SECOND)
    assert {ours, other} <= steps.keys()
    assert ours in steps[other].needs


def test_no_step_touches_the_pool_of_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, first, second = begun()
    asked: dict[str, set[str]] = {}

    def find(conn: str, one: domains.Named) -> None:
        asked.setdefault(one.domain, set()).add(conn)

    monkeypatch.setattr(domains, "find", find)
    monkeypatch.setattr(definitions, "persistent", find)
    monkeypatch.setattr(LinuxSteps, "image", lambda *_: tmp_path)
    monkeypatch.setattr(LinuxSteps, "check_image", lambda *_: None)
    steps = every(run)
    for state in (*of_kind(steps, IMAGE), *of_kind(steps, DISK)):
        assert not steps[state].done()
        steps[state].run(Quiet())
    for node in PLAN.nodes:
        volumes.upload_iso(run, node, f"lab.{node.name}.seed.iso", "cidata", {"user-data": b"x"})
    base, disk = PLAN.nodes[0].volume("base").name, "lab.{}.disk.qcow2"
    seeds = ["lab.controller-1.seed.iso", "lab.node-1.seed.iso"]
    assert sorted(first.written) == sorted([base, *seeds, disk.format("controller-1"), disk.format("node-1")])
    assert sorted(second.written) == sorted([base, "lab.node-2.seed.iso", disk.format("node-2")])
    assert asked == {node.domain: {run.on(node).conn} for node in PLAN.nodes}


def test_a_lab_is_as_slow_as_its_slowest_hypervisor() -> None:
    slow = sites.hypervisor(name=SECOND, facts=MachineFacts(accelerator="tcg"))
    lab = sites.lab("lab", sites.hypervisor(), slow)
    assert lab.pace.scale == slow.facts.scale
    ours, other = (
        domains.Machine(node.domain, "running", tags.of(PLAN, node), hypervisor=node.hypervisor)
        for node in PLAN.nodes[1:]
    )
    assert (lab.scripts(ours).scale, lab.scripts(other).scale) == (1.0, slow.facts.scale)


def test_machines_say_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def machines(conn: str, _lab: str | None) -> list[domains.Machine]:
        node = PLAN.nodes[0] if conn == "second" else PLAN.nodes[1]
        return [domains.Machine(node.domain, "running", tags.of(PLAN, node))]

    monkeypatch.setattr(domains, "machines", machines)
    run, _, _ = begun()
    assert [(one.tag.node, run.on(one).conn) for one in run.machines()] == [
        ("controller-1", "second"),
        ("node-1", "first"),
    ]
