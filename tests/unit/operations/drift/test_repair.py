"""repair: it inspects, repairs, inspects again; and runs only those of create's steps that the differences need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import plans
import pytest
import results
import runs
import standing
from commands import Ran, ran
from standing import Standing

from winlab.adapters.overlay.differences import Difference
from winlab.adapters.vm import domains
from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan import tags
from winlab.engine import engine
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import ConflictError, HostError, NotFoundError
from winlab.events import Event, Note, ignore
from winlab.operations import making, recorded, repair, room
from winlab.operations.drift.model import Drift, Finding
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps import payload, recipe, sources
from winlab.steps.sources import Supply
from winlab.steps.states import API, BOOTED, IMAGE, MEMBER, PREPARED, READY, ROUTES, STARTED


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Standing:
    """A lab that can be repaired: its machines start on request."""
    made = standing.stand(monkeypatch, tmp_path)
    wanted = plans.spec.load("1-1-1")
    recorded.write(made.folder, Proposal(wanted, made.plan, plans.stock(wanted)))

    def steps(run: Run) -> list[Step]:
        def start(name: str) -> Callable[[object], None]:
            return lambda _progress: made.states.__setitem__(name, "running")

        return [
            Step(STARTED("lab", node.name), start(node.domain), lambda: False, [IMAGE(of="x")])
            for node in run.plan.nodes
        ]

    monkeypatch.setattr(Site, "storage", lambda _: nullcontext(made.run().hypervisors))
    monkeypatch.setattr(Run, "start", lambda *_: made.run())
    monkeypatch.setattr(repair, "refuse_other_plan", lambda *_: None)
    monkeypatch.setattr(room, "require_for", lambda *_: None)
    monkeypatch.setattr(recipe, "guests", steps)
    monkeypatch.setattr(recipe, "cluster", lambda *_: [])
    monkeypatch.setattr(sources, "choose", lambda *_, **__: (SimpleNamespace(), "why"))
    return made


def run(node: str = "", **options: Any) -> dict[str, bool]:
    """Repair, or check; the differences, and whether each was repaired."""
    drifts = repair.repair("lab", Site(), ignore, node=node, **options)
    return {f"{one.node} {one.what}".strip(): one.repaired for one in drifts}


def test_a_lab_that_is_as_planned(lab: Standing) -> None:
    assert run() == {}


def test_check_changes_nothing(lab: Standing) -> None:
    lab.folder.known_hosts.unlink()
    lab.states["winlab-lab.node-1"] = "off"
    with lab.folder.locked():  # it needs no lock: another winlab may be at work
        assert run(check=True) == {"known_hosts": False, "node-1 state": False}
    assert not lab.folder.known_hosts.exists()
    assert lab.states["winlab-lab.node-1"] == "off"


def test_drift_hidden_behind_other_drift_is_repaired_too(lab: Standing) -> None:
    """The guest says that its kubelet is down once its machine runs."""
    lab.overlay.differs = [Difference("NAT x", "there", ""), Difference("NAT y", "", "there", foreign=True)]
    lab.states["winlab-lab.node-1"] = "paused"
    lab.guests["node-1"].services["kubelet"] = "stopped"
    assert run() == {"NAT x": True, "NAT y": False, "node-1 state": True, "node-1 kubelet": True}
    assert run() == {"NAT y": False}  # a row that winlab did not make is still there


def test_a_changed_file_is_restored_by_the_step_that_writes_it(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    guest = lab.guests["controller-1"]
    guest.changed = {"/etc/containerd/config.toml": PREPARED}
    prepare = Step(PREPARED("lab", "controller-1"), lambda _progress: guest.changed.clear(), lambda: False)
    other = Step(PREPARED("lab", "node-1"), lambda _progress: pytest.fail("another node's"), lambda: False)
    monkeypatch.setattr(recipe, "cluster", lambda *_: [prepare, other])
    monkeypatch.setattr(payload, "has_all", lambda _run: True)
    assert run(check=True) == {"controller-1 /etc/containerd/config.toml": False}
    assert run() == {"controller-1 /etc/containerd/config.toml": True}
    assert run() == {}


def test_repairs_are_made_in_order(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubeconfig is read from a controller, which must run and answer first."""
    order: list[list[str]] = []
    lab.folder.kubeconfig.unlink()
    lab.folder.kubectl.unlink()
    lab.folder.kubectl.symlink_to(lab.folder.design)
    lab.states["winlab-lab.controller-1"] = "paused"
    lab.guests["controller-1"].services["kubelet"] = "stopped"

    def made(_subject: object, todo: list[Finding], _tell: object) -> None:
        order.append([one.drift.what for one in todo])
        if todo[0].drift.what == "state":
            lab.states["winlab-lab.controller-1"] = "running"
        elif todo[0].drift.what == "kubelet":
            lab.guests["controller-1"].services["kubelet"] = "running"
        else:
            lab.folder.write(lab.folder.kubeconfig, "x")

    monkeypatch.setattr(repair, "_put_right", made)
    assert set(run().values()) == {True}
    assert order == [["state"], ["kubelet"], ["kubeconfig"]]


def test_programs_that_the_user_pushed_are_named(lab: Standing) -> None:
    """ux N8."""
    lab.pushed["winlab-lab.node-1"] = [Pushed("kubelet.exe", "c" * 64, "2026-11-26 12:54 UTC")]
    for check in (True, False):
        notes: list[Event] = []
        assert repair.repair("lab", Site(), notes.append, check=check) == []
        (note,) = [one.text for one in notes if isinstance(one, Note)]
        assert note.startswith("node-1: kubelet.exe is your own build (cccccccccccc...)")
    notes = []
    repair.repair("lab", Site(), notes.append, node="controller-1", check=True)
    assert not [one for one in notes if isinstance(one, Note)]


def test_only_one_node(lab: Standing) -> None:
    for machine in lab.states:
        lab.states[machine] = "off"
    assert run("node-1") == {"node-1 state": True}
    assert lab.states["winlab-lab.controller-1"] == "off"


def test_drift_that_a_repair_did_not_fix_is_not_retried_forever(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    lab.overlay.differs = [Difference("NAT x", "there", "")]
    monkeypatch.setattr(lab.overlay, "apply", tried.append)
    assert run() == {"NAT x": False}
    assert len(tried) == 1


def test_a_machine_is_not_started_without_memory(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(plan: Any, _conn: object) -> None:
        assert [node.name for node in plan.nodes] == ["node-1"]
        raise HostError("no memory")

    monkeypatch.setattr(room, "require_for", refuse)
    lab.states["winlab-lab.node-1"] = "off"
    drifts = repair.repair("lab", Site(), ignore)
    assert ("node-1", False, "failed: no memory") in {(one.node, one.repaired, one.action) for one in drifts}
    assert lab.states["winlab-lab.node-1"] == "off"


def test_another_winlab_and_unknown_names_are_reported(lab: Standing) -> None:
    with pytest.raises(NotFoundError, match="no node 'node-9'"):
        run("node-9")
    with lab.folder.locked(), pytest.raises(ConflictError, match="Another winlab"):
        run()
    lab.folder.design.unlink()
    with pytest.raises(NotFoundError, match="no record") as caught:
        run()
    assert "winlab create" in caught.value.cure


def test_a_lab_of_another_plan_is_refused(lab: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    node = lab.plan.node("node-1")
    tag = tags.of(lab.plan, node).model_copy(update={"plan": "another"})
    monkeypatch.setattr(domains, "machines", lambda *_: [domains.Machine(node.domain, "running", tag)])
    monkeypatch.setattr(repair, "refuse_other_plan", making.refuse_other_plan)
    with pytest.raises(ConflictError, match="another spec"):
        run()


# -- which steps


def finding(node: str, kinds: tuple[Any, ...], lab_kinds: tuple[Any, ...] = (), repair: Any = None) -> Finding:
    drift = Drift("node", node, "x", "a", "b", "", repairable=True)
    return Finding(drift, repair, kinds, lab_kinds)


def test_the_steps_of_create_that_are_named_and_no_others() -> None:
    plan = plans.make(plans.TCG, "1-1-1")
    own = runs.run(plan, folder=SimpleNamespace(lab="lab", credentials=None, has_credentials_for=None))
    every = recipe.once([*recipe.guests(own), *recipe.cluster(own, Supply(SimpleNamespace()))])  # type: ignore[arg-type]
    repaired = finding("node-1", (STARTED, BOOTED, READY), (ROUTES,), repair=lambda _progress: None)
    steps = repair.assemble(own, [repaired, finding("", (), (API,))], every)
    chosen = engine.compose(steps)
    assert chosen[0].title == "repair node-1 x"
    assert {step.title for step in chosen[1:]} == {
        "start node-1", "boot node-1", "kubeconfig", "pod routes", "ready node-1",
    }  # fmt: skip
    titles = [step.title for step in chosen]
    assert titles.index("start node-1") < titles.index("boot node-1")
    for step in chosen[1:]:
        assert chosen[0].reaches in step.needs  # differences without a step of create are repaired first


@pytest.mark.parametrize("kind", [STARTED, MEMBER])
def test_repair_creates_no_disk(kind: Any) -> None:
    plan = plans.make(plans.TCG, "1-1-1")
    own = runs.run(plan, folder=SimpleNamespace(lab="lab", credentials=None, has_credentials_for=None))
    every = recipe.once([*recipe.guests(own), *recipe.cluster(own, Supply(SimpleNamespace()))])  # type: ignore[arg-type]
    (step,) = repair.assemble(own, [finding("node-1", (kind,))], every)
    assert (step.reaches.kind, step.needs) == (kind, frozenset())


# -- the command


def invoke(*words: str) -> Ran:
    return ran("repair", "--lab", "lab", *words)


def test_the_command_s_exit_codes(lab: Standing) -> None:
    assert invoke().exit_code == 0
    assert "is as planned" in invoke("--check").stdout
    lab.folder.known_hosts.unlink()
    done = invoke("--check")
    assert done.exit_code == 22
    assert "known_hosts" in done.stdout
    assert "1 differ" in done.stdout
    done = invoke()
    assert done.exit_code == 0
    assert "1 repaired." in done.stdout
    assert lab.folder.known_hosts.exists()
    lab.overlay.differs = [Difference("NAT y", "", "there", foreign=True)]
    done = invoke()
    assert done.exit_code == 22
    assert "0 repaired, 1 left." in done.stdout


def test_nothing_is_cut_in_a_pipe(lab: Standing) -> None:
    """ux N19: names of volumes were."""
    what = "a" * 300
    lab.overlay.differs = [Difference(what, "b" * 300, "c" * 300, foreign=True)]
    shown = invoke("--check").stdout
    assert f" {what} " in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def test_the_command_s_json(lab: Standing) -> None:
    lab.states["winlab-lab.node-1"] = "paused"
    assert results.item(invoke("node-1", "--check", "--output", "json").stdout) == {
        "name": "node-1", "lab": "lab",
        "area": "machine", "node": "node-1", "what": "state", "expected": "running", "actual": "paused",
        "action": "resumed", "repairable": True, "repaired": False,
    }  # fmt: skip
