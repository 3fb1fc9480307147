"""An existing lab is changed: killed between any two acts, the next command finishes or reverts it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import changing
import plans
import pytest
from changing import Killed, World

from winlab import account
from winlab.adapters.vm import devices
from winlab.errors import ClusterError, ConflictError, HostError, NotFoundError, UsageError
from winlab.events import Event, Note, ignore
from winlab.lab_folder import LabFolder
from winlab.operations import apply, create, destroy, diff, recorded, resize
from winlab.operations.golden import WANTED_BY
from winlab.steps.sources import Origin

BEFORE = ("1-2-1", "workers.os=debian-13", "workers.memory=2GiB")
AFTER = ("1-1-1", "workers.os=debian-13", "workers.memory=3GiB", "linux_workers.count=1")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return make_world(monkeypatch)


def make_world(monkeypatch: pytest.MonkeyPatch) -> World:
    folder = LabFolder("lab")
    folder.remove()
    made = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    create.create(made.proposal(*BEFORE), made.site(), ignore, until="guests")
    for path in (folder.kubeconfig, folder.kubectl):
        folder.write(path, "there")
    made.acts.clear()
    return made


def test_create_says_which_kubernetes_the_workers_need(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LabFolder("lab")
    made = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    said: list[Event] = []
    for more in ((), ("kubernetes.version=1.34",)):
        folder.remove()
        create.create(
            made.proposal("1-1-1", "workers.os=windows-2019", "workers.golden=false", *more),
            made.site(), said.append, until="guests",
        )  # fmt: skip
    notes = [event.text for event in said if isinstance(event, Note) and "Using Kubernetes" in event.text]
    assert len(notes) == 1
    assert notes[0].startswith("Using Kubernetes v1.34.4 (not v")


def test_a_lab_that_another_user_has_just_begun_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """N28: in its first minutes it has a network and no machine, and both would write its volumes."""
    folder = LabFolder("lab")
    folder.remove()
    made = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    monkeypatch.setattr(account, "uid", lambda: 1234567)
    made.owner = 0
    with pytest.raises(ConflictError, match="a lab 'lab', and it belongs to root") as caught:
        create.create(made.proposal(*BEFORE), made.site(), ignore, until="guests")
    assert "--lab NAME" in caught.value.cure
    assert (made.acts, made.volumes) == ([], set())
    made.owner = 1234567
    create.create(made.proposal(*BEFORE), made.site(), ignore, until="guests")
    made.owner = 0  # an existing lab is recognized by its machines
    create.create(made.proposal(*BEFORE), made.site(), ignore, until="guests")


def change(world: World, design: Sequence[str] = AFTER, **flags: Any) -> None:
    apply.apply(world.proposal(*design), world.site(), ignore, until="guests", **flags)


def killed_at(world: World, act: int, design: Sequence[str] = AFTER, **flags: Any) -> bool:
    """Apply, and be killed at this act; return whether it got there."""
    world.acts.clear()
    world.kill = act
    try:
        change(world, design, **flags)
    except Killed:
        return True
    finally:
        world.kill = None
    return False


def test_nodes_come_and_go_and_change(world: World) -> None:
    change(world)
    plan = world.proposal(*AFTER).plan
    seen = world.seen()
    assert seen["machines"] == {node.domain: (plan.digest, (node.cpus, node.memory_mib)) for node in plan.nodes}
    assert seen["volumes"] == sorted(f"lab.{node.name}.disk.qcow2" for node in plan.nodes)
    assert set(seen["cluster"]) == {"controller-1", "node-1", "linux-1"}
    assert seen["record"] == [plan.digest]
    assert seen["network"] == plan.digest
    assert world.domains["winlab-lab.node-1"].now[1] == 2048, "at the next start"
    order = [act for act in world.acts if "node-2" in act or "design" in act]
    assert order == [
        "write design.json",
        "drain node-2",
        "remove winlab-lab.node-2",
        "delete lab.node-2.disk.qcow2",
        "leave node-2",
        "write design.json",
    ]
    world.acts.clear()
    change(world)
    assert set(world.acts) == {"write design.json"}, "there was nothing more to do"


def test_a_volume_of_the_user_beside_a_node_s_disk_stays(world: World) -> None:
    """N5: its name began as the node's volumes do."""
    world.volumes |= {"lab.node-2.backup.qcow2", "lab.node-2.serial.log.0"}
    change(world)
    assert [name for name in world.volumes if "node-2" in name] == ["lab.node-2.backup.qcow2"]
    world.acts.clear()
    change(world)
    assert set(world.acts) == {"write design.json"}, "it is not waited for"


def test_labels_follow_the_pools(world: World) -> None:
    change(world)
    assert world.cluster["node-1"]["metadata"]["labels"] == {"winlab.internal/pool": "node"}
    change(world, ("1-1-1", "workers.os=debian-13", "workers.memory=3GiB"))
    assert world.cluster["node-1"]["metadata"]["labels"] == {}


def test_controllers_accept_pods_before_the_last_linux_worker_is_drained(world: World) -> None:
    world.acts.clear()
    change(world, ("1-0-1",))
    assert "taints" not in world.cluster["controller-1"]["spec"]
    assert world.acts.index("taint controller-1") < world.acts.index("drain node-1")
    change(world, BEFORE)
    assert world.cluster["controller-1"]["spec"]["taints"]


@pytest.mark.parametrize("flags", [{}, {"restart": True}])
def test_killed_anywhere_the_same_command_finishes_it(monkeypatch: pytest.MonkeyPatch, flags: dict[str, Any]) -> None:
    whole = make_world(monkeypatch)
    change(whole, **flags)
    goal, act = whole.seen(), 0
    while killed_at(world := make_world(monkeypatch), act, **flags):
        change(world, **flags)
        assert world.seen() == goal, f"killed at act {act}: {world.acts}"
        act += 1
    assert act >= len(whole.acts) > 10


def test_killed_anywhere_the_former_spec_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, act = make_world(monkeypatch).seen(), 0
    while killed_at(world := make_world(monkeypatch), act):
        change(world, BEFORE)
        assert world.seen() == goal, f"killed at act {act}: {world.acts}"
        act += 1
    assert act > 10


def test_a_golden_image_that_was_begun_and_is_no_longer_needed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was for workers with Windows, which the former spec does not have."""
    gone: list[str] = []
    monkeypatch.setattr(destroy, "destroy", lambda lab, *_: gone.append(lab))
    for name, lab in (("golden-0123abcd", "lab"), ("golden-4567cdef", "another")):
        folder = LabFolder(name)
        folder.write(folder.path / WANTED_BY, lab)
    change(world)
    assert gone == ["golden-0123abcd"]


def test_killed_twice_with_different_specs_the_third_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    third = ("1-1-1", "workers.os=debian-13", "workers.memory=2GiB")
    whole = make_world(monkeypatch)
    change(whole, third)
    goal = whole.seen()
    other = ("1-3-1", "workers.os=debian-13", "workers.cpus=4", "workers.memory=2GiB")
    for first in range(2, 12, 4):
        act = 1
        while True:
            world = make_world(monkeypatch)
            assert killed_at(world, first)
            if not killed_at(world, act, other):
                break
            change(world, third)
            assert world.seen() == goal, f"killed at acts {first} and {act}"
            act += 5


def test_killed_anywhere_create_refuses_or_the_lab_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    act = 0
    while killed_at(world := make_world(monkeypatch), act):
        begun = len(recorded.standing(world.folder)) > 1
        for design in (BEFORE, AFTER):
            before = world.seen()
            if begun or design == AFTER:
                with pytest.raises(ConflictError, match="interrupted" if begun else "already a lab"):
                    create.create(world.proposal(*design), world.site(), ignore, until="guests")
            else:
                create.create(world.proposal(*design), world.site(), ignore, until="guests")
            assert world.seen() == before
        act += 1


def test_a_worker_is_rebuilt_even_if_killed_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    goal, act = make_world(monkeypatch).seen(), 0
    while killed_at(world := make_world(monkeypatch), act, BEFORE, rebuild="node-1"):
        change(world, BEFORE, rebuild="node-1")
        assert world.seen() == goal
        assert "drain node-2" not in world.acts
        act += 1
    world = make_world(monkeypatch)
    old = world.domains["winlab-lab.node-1"]
    change(world, BEFORE, rebuild="node-1")
    assert world.domains["winlab-lab.node-1"] is not old
    assert world.acts.index("leave node-1") < world.acts.index("join node-1")
    first = world.domains["winlab-lab.node-1"]
    change(world, BEFORE, rebuild="node-1")
    assert world.domains["winlab-lab.node-1"] is not first, "it was finished: this is another wish"


@pytest.mark.parametrize("flags", [{}, {"rebuild": "node-1"}])
def test_the_new_machine_of_a_rebuild_that_was_interrupted_stays(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, str]
) -> None:
    whole = make_world(monkeypatch)
    change(whole, BEFORE, rebuild="node-1")
    for act in range(whole.acts.index("start node-1") + 1, len(whole.acts)):
        world = make_world(monkeypatch)
        assert killed_at(world, act, BEFORE, rebuild="node-1")
        new = world.domains["winlab-lab.node-1"]
        change(world, BEFORE, **flags)
        assert world.domains["winlab-lab.node-1"] is new, world.acts
        assert world.seen() == whole.seen()


@pytest.mark.parametrize("added", [False, True])
def test_node_add_and_remove_are_finished_by_the_same_command(monkeypatch: pytest.MonkeyPatch, added: bool) -> None:
    def resized(world: World, **flags: Any) -> None:
        site = world.site()
        spec = resize.grown("lab", site, "", 1) if added else resize.shrunk("lab", site, "node-2")
        apply.apply(world.proposal_of(spec), site, ignore, until="guests", **flags)

    whole = make_world(monkeypatch)
    resized(whole)
    goal = whole.seen()
    assert ("winlab-lab.node-3" in goal["machines"]) == added
    assert ("winlab-lab.node-2" in goal["machines"]) == added
    for act in range(len(whole.acts)):
        world = make_world(monkeypatch)
        world.kill = act
        with pytest.raises(Killed):
            resized(world)
        world.kill = None
        resized(world)
        assert world.seen() == goal, f"killed at act {act}"


def test_node_remove_with_force_after_a_drain_that_failed(world: World) -> None:
    world.stuck = True
    spec = resize.shrunk("lab", world.site(), "node-2")
    with pytest.raises(ClusterError, match="can't all be moved"):
        apply.apply(world.proposal_of(spec), world.site(), ignore, until="guests")
    spec = resize.shrunk("lab", world.site(), "node-2")
    apply.apply(world.proposal_of(spec), world.site(), ignore, until="guests", force=True)
    assert "winlab-lab.node-2" not in world.domains


@pytest.mark.usefixtures("no_media")
def test_a_change_that_is_refused_late_is_not_begun(world: World, tmp_path: Path) -> None:
    text = tmp_path / "kubelet"
    text.write_text("no program")
    before = world.seen()
    with pytest.raises(UsageError):
        apply.apply(world.proposal(*AFTER), world.site(), ignore, origin=Origin(own=(("kubelet", text),)))
    assert (world.seen(), world.acts) == (before, [])


@pytest.fixture
def no_media(monkeypatch: pytest.MonkeyPatch) -> None:
    """No payload CD is in any drive."""
    monkeypatch.setattr(devices, "medium", lambda *_: None)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [("controller-1", ConflictError, "etcd"), ("node-9", NotFoundError, "node-1, node-2")],
)
def test_nodes_that_can_t_be_rebuilt(world: World, name: str, error: type[Exception], words: str) -> None:
    before = world.seen()
    with pytest.raises(error, match=words):
        change(world, BEFORE, rebuild=name)
    assert world.seen() == before


def test_refused_changes_are_all_named_and_nothing_is_touched(world: World) -> None:
    before = world.seen()
    with pytest.raises(ConflictError) as caught:
        change(world, (*AFTER, "controllers.count=3", "workers.disk=80GiB"))
    assert "controllers.count: from 1 to 3" in caught.value.why
    assert "node node-1: disk: from 20 GiB to 80 GiB" in caught.value.why
    assert (world.seen(), world.acts) == (before, [])


def test_an_external_address_that_another_lab_has(world: World) -> None:
    world.holder = "other"
    with pytest.raises(ConflictError, match="'other' already has"):
        change(world)
    assert world.acts == []


def test_memory_is_checked_with_what_goes_and_what_grows(world: World) -> None:
    world.free = 0
    with pytest.raises(HostError, match="2048 MiB"):
        change(world, (*BEFORE, "linux_workers.count=1"))
    with pytest.raises(HostError, match=r"3072 MiB of memory.* only 2048 MiB"):
        change(world, restart=True)
    assert world.acts == []
    change(world)  # node-2's memory suffices for linux-1


def test_restarted_machines_have_their_new_sizes(world: World) -> None:
    change(world, restart=True)
    assert world.domains["winlab-lab.node-1"].now[1] == 3072
    assert "shut down winlab-lab.controller-1" not in world.acts


def test_machines_can_be_restarted_later(world: World) -> None:
    change(world)
    assert diff.difference(world.proposal(*AFTER).plan, world.site()).pending[0].node == "node-1"
    change(world, restart=True)
    assert world.domains["winlab-lab.node-1"].now[1] == 3072
    assert not diff.difference(world.proposal(*AFTER).plan, world.site()).pending


def test_pods_that_can_t_be_moved(world: World) -> None:
    world.stuck = True
    with pytest.raises(ClusterError, match="can't all be moved") as caught:
        change(world)
    assert "--force" in caught.value.cure
    assert "winlab-lab.node-2" in world.domains
    change(world, force=True)
    assert "winlab-lab.node-2" not in world.domains
    assert "--disable-eviction" not in world.asked[0]
    assert "--disable-eviction" in world.asked[1]


def test_an_api_server_that_does_not_answer(world: World) -> None:
    world.answers = False
    with pytest.raises(ClusterError, match="can't be drained: node-2"):
        change(world)
    assert world.acts == []


def test_a_kubectl_that_is_gone(world: World) -> None:
    world.folder.kubectl.unlink()
    with pytest.raises(ClusterError, match="can't be drained: node-2") as caught:
        change(world)
    assert "kubectl' is missing" in caught.value.why
    assert "winlab repair --lab lab" in caught.value.cure
    assert world.acts == []


def test_a_lab_that_is_off_can_t_remove_nodes_from_its_cluster(world: World) -> None:
    for one in world.domains.values():
        one.state = "off"
    world.answers = False
    with pytest.raises(ClusterError, match="removed from the cluster: node-2") as caught:
        change(world)
    assert "winlab start --lab lab" in caught.value.cure
    assert world.acts == []


def test_a_suspended_machine_is_restarted_too(world: World) -> None:
    world.domains["winlab-lab.node-1"].state = "suspended"
    change(world, restart=True)
    assert "shut down winlab-lab.node-1" in world.acts
    assert world.domains["winlab-lab.node-1"].now[1] == 3072


def test_new_images_that_are_not_in_the_nodes_yet(world: World) -> None:
    design = (*BEFORE, "addons.metrics-server={}")
    said: list[Event] = []
    apply.apply(world.proposal(*design), world.site(), said.append, until="guests")
    notes = [event.text for event in said if isinstance(event, Note)]
    assert notes[-1].endswith("'winlab apply --lab lab' finishes the change.")
    plan = world.proposal(*design).plan
    with world.site().hypervisors() as hosts:
        compared = diff.compare(plan, world.site(), hosts)
        made = apply.amendment(plan, compared, hosts, world.folder, restart=False, force=False, rebuild="")
    assert {node.name for node in made.reloaded} == {"controller-1", "node-1", "node-2"}


def test_a_node_that_is_off_is_not_drained(world: World) -> None:
    world.domains["winlab-lab.node-2"].state = "off"
    change(world)
    assert "drain node-2" not in world.acts
    assert "node-2" not in world.cluster


def test_a_lab_that_this_account_did_not_make(world: World) -> None:
    world.folder.design.unlink()
    with pytest.raises(NotFoundError, match="no record"):
        change(world)


def test_machines_of_another_plan(world: World) -> None:
    one = world.domains["winlab-lab.node-1"]
    one.tag = one.tag.model_copy(update={"plan": "0123456789abcdef"})
    with pytest.raises(ConflictError, match="node-1"):
        change(world)


def test_a_lab_that_joined_another_cluster(world: World) -> None:
    held = recorded.read(world.folder)
    workers = tuple(node for node in held.plan.nodes if node.role == "worker")
    foreign = held.plan.cluster.model_copy(update={"names": ()})
    joined = held.model_copy(update={"plan": held.plan.model_copy(update={"nodes": workers, "kubernetes": foreign})})
    world.folder.write(world.folder.design, joined.model_dump_json())
    with pytest.raises(ConflictError, match="external cluster") as caught:
        change(world)
    assert "winlab join" in caught.value.cure


def test_the_objects_of_an_add_on_that_goes(world: World) -> None:
    change(world, (*BEFORE, "addons.metrics-server={}"))
    assert any(act.startswith("eject") for act in world.acts), "the nodes need a payload CD with its image"
    world.acts.clear()
    change(world, BEFORE)
    objects = apply._uninstalled(
        [world.proposal(*BEFORE, "addons.metrics-server={}").plan], world.proposal(*BEFORE).plan
    )
    (gone,) = [act for act in world.acts if act.startswith("delete")]
    assert gone == f"delete {len(objects['metrics-server'])} objects"
    assert ("", "ConfigMap", "kube-system", "winlab-addons") in map(apply._key, objects["metrics-server"])


def test_another_setting_of_an_add_on_deletes_nothing(world: World) -> None:
    before = world.proposal(*BEFORE, "addons.metrics-server={}").plan
    after = world.proposal(*BEFORE, "addons.metrics-server.resolution=60").plan
    assert apply._uninstalled([before], after) == {}


# -- diff


def test_a_lab_as_planned(world: World) -> None:
    difference = diff.difference(world.proposal(*BEFORE).plan, world.site())
    assert not difference
    assert difference.changes == ()


def test_a_missing_machine_is_reported(world: World) -> None:
    del world.domains["winlab-lab.node-2"]
    (row,) = diff.difference(world.proposal(*BEFORE).plan, world.site()).changes
    assert (row.kind, row.what) == ("added", "node node-2")
    change(world, BEFORE)
    assert not diff.difference(world.proposal(*BEFORE).plan, world.site())


def test_a_network_and_sizes_that_someone_else_changed(world: World) -> None:
    world.network = ""
    (row,) = diff.difference(world.proposal(*BEFORE).plan, world.site()).changes
    assert row.what == "network"
    world.domains["winlab-lab.node-2"].sizes = (2, 512)
    (row,) = diff.difference(world.proposal(*BEFORE).plan, world.site()).changes
    assert (row.what, row.before, row.after) == ("node node-2: sizes", "2 CPUs, 512 MiB", "2 CPUs, 2 GiB")
    change(world, BEFORE)
    assert not diff.difference(world.proposal(*BEFORE).plan, world.site())


def test_an_interrupted_change_is_reported(world: World) -> None:
    assert killed_at(world, 3)
    assert diff.difference(world.proposal(*AFTER).plan, world.site()).unfinished
    change(world)
    assert not diff.difference(world.proposal(*AFTER).plan, world.site())
