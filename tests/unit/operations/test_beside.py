"""Commands for labs with machines beside their cluster, and for labs without one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import changing
import plans
import pytest
import standing
from changing import World

from winlab import Lab
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.checks import access
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.errors import NotFoundError, UsageError
from winlab.events import ignore
from winlab.lab_folder import LabFolder
from winlab.operations import apply, create, join, load, look, push, recorded, resize
from winlab.site import Site
from winlab.steps import names
from winlab.steps.states import NAMES

POOLS = "workers=[{name: node, os: debian-13}, {name: agent, os: debian-13, cluster: false}]"
BESIDE = ("1-1-1", POOLS)
ALONE = ("0-2-1", "workers.os=debian-13")


def machines(plan: Plan) -> list[Machine]:
    return [Machine(node.domain, "running", tags.of(plan, node)) for node in plan.nodes]


def make_world(monkeypatch: pytest.MonkeyPatch, *design: str) -> World:
    folder = LabFolder("lab")
    folder.remove()
    made = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    create.create(made.proposal(*design), made.site(), ignore, until="guests")
    made.acts.clear()
    return made


def change(world: World, *design: str, **flags: Any) -> None:
    apply.apply(world.proposal(*design), world.site(), ignore, until="guests", **flags)


def test_a_machine_beside_the_cluster_is_removed_without_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(monkeypatch, "1-1-1", POOLS, "workers.agent.count=2")
    for path in (world.folder.kubeconfig, world.folder.kubectl):
        world.folder.write(path, "there")
    world.answers = False  # the API server need not be asked
    change(world, *BESIDE)
    assert "remove winlab-lab.agent-2" in world.acts
    assert not any(act.startswith("drain") for act in world.acts)


def test_a_machine_beside_the_cluster_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(monkeypatch, *BESIDE)
    change(world, *BESIDE, rebuild="agent-1")
    assert "remove winlab-lab.agent-1" in world.acts
    assert "start agent-1" in world.acts
    assert "drain agent-1" not in world.acts


def test_a_lab_without_a_cluster_grows_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(monkeypatch, *ALONE)
    for spec in (resize.grown("lab", world.site(), "", 1), resize.shrunk("lab", world.site(), "node-2")):
        assert spec.kubernetes.version is None, "nothing is decided for a cluster that is not there"
        assert spec.controllers.count == 0
    change(world, *ALONE, "workers.count=3")
    assert "start node-3" in world.acts
    world.acts.clear()
    change(world, *ALONE)
    assert "remove winlab-lab.node-3" in world.acts


def test_commands_that_need_a_cluster_say_that_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    make_world(monkeypatch, *ALONE)
    lab = Lab("lab")
    calls = (
        lab.kubeconfig, lab.merge_kubeconfig, lambda: lab.kubectl("get", "nodes"), lambda: lab.become_kubectl([]),
        lab.test_readiness, lab.test_smoke, lambda: lab.push("node-1", "kubelet"), lambda: lab.load("image"),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(NotFoundError, match="The lab 'lab' has no cluster"):
            cast(Any, call)()


def test_a_lab_with_a_cluster_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.require_cluster(make_world(monkeypatch, *BESIDE).folder)


def test_tests_and_images_are_only_for_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    plan = plans.make(plans.KVM, *BESIDE)
    every = machines(plan)
    standing = SimpleNamespace(folder=LabFolder("lab"), pace=SimpleNamespace(scale=1.0))

    @contextmanager
    def hypervisors(_self: Site) -> Any:
        yield Hypervisors(())

    monkeypatch.setattr(Site, "hypervisors", hypervisors)
    monkeypatch.setattr(Site, "host_facts", plans.KVM)
    monkeypatch.setattr(access.LabOnSite, "find", lambda *_: standing)
    monkeypatch.setattr(look, "find", lambda *_: every)
    monkeypatch.setattr(access.Kubectl, "of", lambda _: None)
    found, _ = access.of("lab", Site())
    assert [tag.node for tag in found] == ["controller-1", "node-1"]
    image = load.Ready("image", "linux", tmp_path, "0")
    assert [one.tag.node for one in load.nodes_for([image], every)["linux"]] == ["controller-1", "node-1"]
    monkeypatch.setattr(look, "find_node", lambda *_: every[-1])
    with pytest.raises(UsageError, match="'agent-1' is not in the cluster"):
        push.to_node("lab", Site(), "agent-1", "kubelet", ignore)


def test_destroy_takes_only_nodes_out_of_an_external_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))
    monkeypatch.setattr(join.shutil, "which", lambda _: None)
    folder = LabFolder("lab")
    folder.write(folder.kubeconfig, "x")
    tags_ = [one.tag for one in machines(plans.make(plans.KVM, *BESIDE)) if one.tag.role != "controller"]
    _, said = join.leave(folder, tags_)
    assert "run: kubectl delete node node-1; kubectl delete" in said


def test_a_lab_as_planned_has_no_drift_and_lost_names_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lab = standing.stand(monkeypatch, tmp_path, *BESIDE)
    del lab.rows["agent-1"]  # it is not a node
    lab.guests["agent-1"].joined = False
    lab.guests["agent-1"].services = {"containerd": "absent"}
    monkeypatch.setattr(names, "are_there", lambda _run: True)
    lab.overlay.routes = {"10.244.0.0/24": "10.77.0.11", "10.244.1.0/24": "10.77.0.101"}
    assert lab.drifts() == []
    monkeypatch.setattr(names, "are_there", lambda _run: False)
    (one,) = lab.findings()
    assert (one.drift.what, one.drift.repairable, one.lab_steps) == ("names of machines", True, (NAMES,))


def test_status_has_the_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    from winlab.cli import lab as commands

    plan = plans.make(plans.KVM, *BESIDE)
    rows = [look.NodeStatus(one.tag, "running", answers=True) for one in machines(plan)]
    found: list[Any] = []
    session = SimpleNamespace(answer=lambda _, items: found.extend(items) or True)
    monkeypatch.setattr(commands, "current", lambda: session)
    monkeypatch.setattr(commands, "active", lambda _: [])
    commands._show_status(cast(Lab, SimpleNamespace(name="lab", status=lambda: rows, protected_by=lambda: None)))
    told = {row.name: (row.role, row.cluster) for row in found}
    assert told == {
        "controller-1": ("controller", True),
        "node-1": ("worker", True),
        "agent-1": ("machine", False),
    }
