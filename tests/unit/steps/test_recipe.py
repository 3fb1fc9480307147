"""The recipes: which steps there are for a plan, and that they fit together, whatever the plan."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import external
import plans
import pytest
import runs
from clones import REHEARSAL, make

from winlab.adapters.vm import devices, domains
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.engine.state import State
from winlab.engine.step import Step, compose
from winlab.errors import SequenceError
from winlab.lab_folder import LabFolder
from winlab.steps import recipe, states
from winlab.steps.sources import Supply

SUPPLY = Supply(cast(Any, None))
BUILD = ("seal golden", "image windows-rehearsal-golden", "remove golden")


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domains, "find", lambda *_: None)
    monkeypatch.setenv("WINLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))


def titles(steps: Iterable[Step]) -> list[str]:
    return [runs.title_of(step) for step in steps]


def created(plan: Plan, *, build: bool = False, admin: str = "") -> list[Step]:
    """The steps of ``winlab create``."""
    run = runs.run(plan)
    steps = [*recipe.guests(run), *recipe.cluster(run, SUPPLY, admin)]
    if build:
        assert plan.builders
        return [*steps, *recipe.golden_build(run, plan.builders, SUPPLY, alone=False)]
    return [*steps, *recipe.golden_upload(run)]


def before(steps: Iterable[Step], state: State) -> set[State]:
    """Every state that is reached before a step which reaches this one begins."""
    by_state = {one: step for step in steps for one in step.states}
    found: set[State] = set()
    left = [state]
    while left:
        for one in by_state[left.pop()].needs - found:
            found |= by_state[one].states
            left.append(one)
    return found


@pytest.mark.parametrize("source", ["1-0-1", "1-1-1", "3-2-1"])
@pytest.mark.parametrize(
    "changes",
    [
        ["workers.os=debian-13"],
        [REHEARSAL],
        [REHEARSAL, "workers.golden=false"],
        [REHEARSAL, "linux_workers.count=2"],
        [REHEARSAL, "linux_workers.count=1", "network.cni=host-gw"],
        ["network.cni=calico-bgp"],
    ],
)
def test_a_lab_s_steps_fit_together(source: str, changes: list[str]) -> None:
    plan = plans.make(plans.TCG, source, *changes)
    steps = compose(created(plan))
    reached = {state for step in steps for state in step.states}
    for node in plan.nodes:
        at = {kind(plan.lab, node.name) for kind in (states.BOOTED, states.MEMBER, states.PODS_CONNECTED, states.READY)}
        assert at <= reached
        # however a system comes to it: the payload goes into a free drive, Ready is asked for when pods are connected
        assert states.DRIVE_FREE("lab", node.name) in before(steps, states.PAYLOAD_INSERTED("lab", node.name))
        assert states.MEMBER("lab", node.name) in before(steps, states.PODS_CONNECTED("lab", node.name))
    assert {states.KUBECTL("lab"), states.API("lab"), states.DNS("lab")} <= reached
    compose([*recipe.guests(runs.run(plan)), *recipe.golden_upload(runs.run(plan))])


def test_titles_use_words_that_users_know() -> None:
    plan = plans.make(plans.TCG, "1-1-1", REHEARSAL)
    shared = "credentials,network,image debian-13,image windows-rehearsal-golden,payload linux,payload windows"
    cluster = "kubeconfig,cluster objects,pod routes,cluster DNS"
    linux = "disk,seed,start,boot,insert,prepare,init,cni,ready"
    windows = "disk,answer ISO,start,boot,detach,insert,features,containerd,binaries,configure,"
    windows += "kubelet,join,cni,proxy,ready"
    assert set(titles(created(plan))) == {
        *shared.split(","),
        *cluster.split(","),
        *(f"{verb} controller-1" for verb in linux.split(",")),
        *(f"{verb} node-1" for verb in windows.split(",")),
    }


def test_controllers_join_one_after_the_other_and_before_linux_workers() -> None:
    plan = plans.make(plans.TCG, "3-1-1", REHEARSAL, "linux_workers.count=1")
    steps = created(plan)
    member = {name: before(steps, states.MEMBER("lab", name)) for name in (node.name for node in plan.nodes)}
    assert states.MEMBER("lab", "controller-2") in member["controller-3"]
    assert states.MEMBER("lab", "controller-3") not in member["controller-2"]
    linux = next(node.name for node in plan.nodes if node.role == "worker" and node.os == "linux")
    assert states.MEMBER("lab", "controller-3") in member[linux]


@pytest.mark.parametrize("changes", [(REHEARSAL,), ("workers.os=debian-13",), (REHEARSAL, "linux_workers.count=2")])
def test_a_lab_that_joins_has_no_cluster_of_its_own(changes: tuple[str, ...]) -> None:
    steps = compose(created(external.make(*changes), admin="admin"))
    found = set(titles(steps))
    assert {"kubectl", "kubeconfig", "ready node-1", "cluster objects"} <= found
    assert not found & {"cluster DNS", "init controller-1"}
    api = runs.titled(list(steps), "kubeconfig")
    assert api.needs == {states.KUBECTL("lab")}
    assert api.states == {states.API("lab")}


@pytest.mark.parametrize(
    "changes",
    [
        [REHEARSAL],
        ["workers.os=windows-2022", "workers.bus=sata"],
        ["workers.os=windows-2022"],  # with the drivers that create would fetch
        ["workers.os=windows-2025", "workers.updates=true"],
    ],
)
def test_a_golden_image_is_made_beside_its_lab_or_alone(changes: list[str]) -> None:
    plan = make(*changes)
    assert plan.builders
    compose(created(plan, build=True))
    steps = compose(recipe.golden_build(runs.run(plan), plan.builders, SUPPLY, alone=True))
    found = titles(steps)
    assert found[-3:] == ["seal golden", f"image {plan.node('node-1').image}-golden", "remove golden"]
    assert {"payload windows", "credentials of golden", "network of golden"} <= set(found)
    assert ("virtio drivers" in found) is (changes[0] != REHEARSAL and "workers.bus=sata" not in changes)
    assert ("updates golden" in found) is ("workers.updates=true" in changes)
    sealed = before(steps, states.SEALED(plan.builders[0].lab, "golden"))
    assert (states.UPDATES(plan.builders[0].lab, "golden") in sealed) is ("workers.updates=true" in changes)
    assert states.BINARIES(plan.builders[0].lab, "golden") in sealed
    # clones use it
    golden = states.IMAGE(of=plan.node("node-1").volume("base").name, host=HYPERVISOR)
    assert golden in before(created(plan, build=True), states.STARTED("lab", "node-1"))


def test_golden_images_of_several_pools_are_made_side_by_side() -> None:
    plan = make("workers=[{os: windows-rehearsal}, {name: other, os: windows-rehearsal, disk: 9GiB}]")
    first, second = plan.builders
    steps = compose(recipe.once(created(plan, build=True)))
    assert titles(steps).count("payload windows") == 1
    for builder, clone, other in ((first, "node-1", second), (second, "other-1", first)):
        needed = before(steps, states.STARTED("lab", clone))
        assert states.SEALED(builder.lab, "golden") in needed
        assert states.SEALED(other.lab, "golden") not in needed
    run = runs.run(plan)
    uploads = [step.reaches for step in recipe.golden_upload(run, [first])]
    assert uploads == [states.IMAGE(of=plan.node("other-1").volume("base").name, host=HYPERVISOR)]
    compose(
        [
            *recipe.guests(run),
            *recipe.golden_upload(run, [first]),
            *recipe.golden_build(run, [first], SUPPLY, alone=True),
        ]
    )


def test_shared_needs_of_several_labs_are_obtained_once() -> None:
    plan = make("workers=[{os: windows-rehearsal}, {name: other, os: windows-rehearsal, golden: false}]")
    found = created(plan, build=True)
    assert titles(found).count("image windows-rehearsal") == 2
    assert titles(compose(recipe.once(found))).count("image windows-rehearsal") == 1


@pytest.mark.parametrize("golden_image", ["true", "false"])
def test_clones_need_no_drivers_of_their_own(golden_image: str) -> None:
    """With the golden image nothing is fetched; machines that are installed by themselves have them fetched."""
    plan = make("workers.os=windows-2022", f"workers.golden={golden_image}")
    assert ("virtio drivers" in titles(recipe.guests(runs.run(plan)))) is (golden_image == "false")


def test_another_lab_s_payload_does_not_count_for_the_builder(monkeypatch: pytest.MonkeyPatch) -> None:
    """``image build`` plans in the name of the default lab, which may exist and have the CD in its drive."""
    plan = make(REHEARSAL)
    assert plan.builders
    monkeypatch.setattr(devices, "medium", lambda *_: Path("base-kubernetes-0123.iso"))
    pool = type("Pool", (), {"is_complete": lambda *_: True})()
    steps = recipe.golden_build(runs.run(plan, pool=pool), plan.builders, SUPPLY, alone=True)
    assert not runs.titled(steps, "payload windows").done()


def test_once_sysprep_has_begun_the_machine_is_left_alone() -> None:
    plan = make(REHEARSAL)
    assert plan.builders
    folder = LabFolder(plan.builders[0].lab)
    folder.write(folder.path / "sealed.json", "{}")
    steps = recipe.golden_build(runs.run(plan), plan.builders, SUPPLY, alone=False)
    assert tuple(titles(compose(steps))) == BUILD


def test_shared_artifacts_are_obtained_once_for_all_labs() -> None:
    """Such as the medium of a golden image, which another machine is installed from."""

    def step(state: State, done: bool = True) -> Step:
        return Step(state, lambda _: None, lambda: done)

    image = states.IMAGE(of="base-windows-2022-0123.iso", host=HYPERVISOR)
    own = [step(states.NETWORK("lab")), step(states.NETWORK("golden-1"))]
    for done in ((True, True), (True, False)):
        steps = compose(recipe.once([step(image, done[0]), *own, step(image, done[1])]))
        assert len(steps) == 3
        assert next(one for one in steps if one.reaches == image).done() is all(done)
    with pytest.raises(SequenceError, match="Two steps reach the state network"):
        compose(recipe.once([*own, step(states.NETWORK("lab"))]))


def test_a_recipe_that_lacks_a_part_is_refused() -> None:
    """The nodes' clones need an image that no step provides."""
    with pytest.raises(SequenceError, match=r"'disk node-1' waits for the state image \(base-windows-rehearsal-golden"):
        compose(recipe.guests(runs.run(make(REHEARSAL))))


def test_golden_images_that_are_made_side_by_side_are_distinguished() -> None:
    plan = make("workers=[{name: a, os: windows-2019}, {name: b, os: windows-2022}]", "kubernetes.version=1.34")
    steps = compose(recipe.once(recipe.golden_build(runs.run(plan), plan.builders, SUPPLY, alone=True)))
    assert len({step.title for step in steps}) == len(steps)
    for builder, release in zip(plan.builders, ("2019", "2022"), strict=True):
        assert builder.lab.startswith(f"golden-{release}-")
        assert f"boot {builder.lab}" in [step.title for step in steps]


def test_kinds_have_names_and_words_of_their_own() -> None:
    kinds = [value for value in vars(states).values() if isinstance(value, states.Kind)]
    assert len({kind.name for kind in kinds}) == len(kinds) > 30
    for kind in kinds:
        with suppress(AttributeError):
            assert kind("lab", "node-1", of="base-x-1").title
