"""``winlab clone --fresh-credentials``: refusals, the folder meanwhile, the order of steps. And a copy's kubectl."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import commands
import plans
import pytest
import sites
from clones import Network

from winlab import snapshots
from winlab.adapters import traces
from winlab.adapters.kube import kubeconfig, reduced
from winlab.adapters.vm import disks
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design import spec
from winlab.design.plan import credentials, make
from winlab.engine.step import Step, compose
from winlab.errors import ConflictError, GuestError, NotFoundError
from winlab.events import Event, Note, ignore
from winlab.lab_folder import LabFolder
from winlab.lab_snapshots import Copied, Snapshots
from winlab.operations import room
from winlab.operations.carry_out import Job, Underway
from winlab.operations.snapshot import compatible, copying, memory, where
from winlab.snapshots import Emulator, Id, SavedNode, Snapshot
from winlab.steps import payload
from winlab.steps.sources import Origin
from winlab.steps.states import ADMINISTRATOR, ANSWERING, READY_AGAIN, RENEWED

IDENTITY = reduced.Identity("Q0E=", "Q0VSVA==", "S0VZ")
READY = Id("lab", "ready")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path))


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    wanted = spec.load("1-1-1")
    plan = make.make(wanted, "lab", plans.TCG, plans.stock(wanted))
    kubectl = tmp_path / "kubectl"
    kubectl.touch()
    monkeypatch.setattr(reduced, "own_identity", lambda _: IDENTITY)
    made = Snapshot(
        lab="lab",
        name="ready",
        made=datetime(2026, 11, 27, 12, tzinfo=UTC),
        made_by="0.1",
        memory=True,
        paused=4.2,
        emulator=Emulator(accelerator="tcg", version="7.2.22", cpu=""),
        nodes={node.name: SavedNode(drives={}, memory_mib=1, split=True, sample=4096) for node in plan.nodes},
        routes={},
        plan=plan,
        spec=wanted,
        roots=wanted.roots,
        credentials=credentials.generate(plan),
        kubeconfig=kubeconfig.for_lab(IDENTITY, "lab", plan.cluster.external, plan.network.external_cidr),
        kubectl=kubectl,
    )
    snapshots.write(made)
    return made


class World:
    """A host on which steps are collected, not run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Step] = []
        self.broken = False
        pool = SimpleNamespace(names=lambda _prefix: [])
        self.site: Any = sites.FakeSite(sites.hypervisor(sites.idle(), pool), overlay=Network(set()))

        def run(_under: Underway, steps: Iterable[Step], _verb: str) -> None:
            self.steps = list(compose(steps))
            if self.broken:
                raise GuestError("a node is gone")

        def carried_out(job: Job[Any], site: Any, tell: Any) -> Any:
            return job.work(Underway(LabFolder(job.lab), site, site.each, tell, ExitStack()))

        monkeypatch.setattr(copying, "carry_out", carried_out)
        monkeypatch.setattr(Underway, "run", run)
        monkeypatch.setattr(Hypervisors, "machines", lambda *_: [])
        monkeypatch.setattr(traces, "labs", lambda *_: {})
        monkeypatch.setattr(disks, "collect", lambda *_: None)
        monkeypatch.setattr(compatible, "require", lambda *_: None)
        monkeypatch.setattr(memory, "definition", lambda *_: "<domain/>")
        monkeypatch.setattr(room, "require_for", lambda *_, **__: None)
        monkeypatch.setattr(where, "unshared", lambda *_: {})

    def clone(self, *, fresh_credentials: bool = True) -> Copied:
        (made,) = copying.clone(READY, ["try"], self.site, ignore, fresh_credentials=fresh_credentials)
        return made


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_copy_gets_none_if_its_administrator_keeps_all_rights(saved: Snapshot, world: World) -> None:
    cluster = saved.plan.cluster.model_copy(update={"made_with": "k3s"})
    snapshots.write(saved.model_copy(update={"plan": saved.plan.model_copy(update={"kubernetes": cluster})}))
    with pytest.raises(ConflictError, match="can't get its own credentials") as refused:
        world.clone()
    assert "made by k3s, whose administrator can't lose its rights" in str(refused.value.why)


def test_a_copy_that_is_off_gets_none(saved: Snapshot, world: World) -> None:
    snapshots.write(saved.model_copy(update={"memory": False}))
    with pytest.raises(ConflictError, match="can't get its own credentials: it is off"):
        world.clone()
    assert not LabFolder("try").path.exists()
    world.clone(fresh_credentials=False)


@pytest.mark.parametrize("fresh", [False, True])
def test_a_copy_obtains_the_kubectl_that_this_host_does_not_have(
    saved: Snapshot, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    """As after 'snapshot import', whose record names none, on a host with an empty cache."""
    snapshots.write(saved.model_copy(update={"kubectl": None}))
    asked: list[object] = []
    (tmp_path / "obtained").touch()

    def fetch(versions: object, origin: Origin, _progress: object) -> Path:
        asked.append((versions, origin.bundle))
        return tmp_path / "obtained"

    monkeypatch.setattr(payload, "fetch_kubectl", fetch)
    origin = Origin(bundle=tmp_path / "bundle.tar")
    copying.clone(READY, ["try"], world.site, ignore, fresh_credentials=fresh, origin=origin)
    assert LabFolder("try").kubectl.resolve() == tmp_path / "obtained"
    assert asked == [(saved.plan.cluster.versions, origin.bundle)]
    waited = {step.reaches.node for step in world.steps if step.reaches.kind == READY_AGAIN}
    assert waited == {node.name for node in saved.plan.nodes}


def test_a_copy_without_a_kubectl_is_made_and_says_so(
    saved: Snapshot, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*_: object) -> Path:
        raise NotFoundError("No source has it.")

    monkeypatch.setattr(payload, "fetch_kubectl", fetch)
    assert saved.kubectl is not None
    saved.kubectl.unlink()
    notes: list[str] = []
    tell = lambda event: notes.append(event.text) if isinstance(event, Note) else None  # noqa: E731
    copying.clone(READY, ["try"], world.site, tell)
    assert any(
        "kubectl can't be obtained. No source has it. 'winlab repair --lab try' tries again." in one for one in notes
    )
    assert READY_AGAIN not in {step.reaches.kind for step in world.steps}
    world.steps.clear()
    with pytest.raises(NotFoundError, match="No source has it"):
        world.clone(fresh_credentials=True)
    assert world.steps == []


def test_the_lab_has_its_own_credentials_at_the_end(saved: Snapshot, world: World) -> None:
    done = world.clone()
    assert done.fresh_credentials
    made = LabFolder("try").credentials()
    assert made.administrator_password != saved.credentials.administrator_password
    assert made.ssh_key != saved.credentials.ssh_key
    assert not [path for path in LabFolder("try").path.iterdir() if path.is_dir()]


def test_a_copy_without_the_flag_has_its_origin_s(saved: Snapshot, world: World) -> None:
    done = world.clone(fresh_credentials=False)
    assert not done.fresh_credentials
    assert LabFolder("try").credentials() == saved.credentials
    assert not {RENEWED, ADMINISTRATOR} & {step.reaches.kind for step in world.steps}


def test_new_credentials_come_after_every_node_is_ready(saved: Snapshot, world: World) -> None:
    world.clone()
    nodes = [node.name for node in saved.plan.nodes]
    order = [step.reaches for step in world.steps]
    ready = {kind("try", name) for kind in (ANSWERING, READY_AGAIN) for name in nodes}
    (administrator,) = [step for step in world.steps if step.reaches == ADMINISTRATOR("try")]
    assert administrator.needs == ready
    assert order[-len(nodes) :] == [RENEWED("try", name) for name in nodes]


def test_a_copy_that_failed_starts_over_with_its_origin_s(saved: Snapshot, world: World) -> None:
    """Its machines do, too: they are restored from the snapshot."""
    world.broken = True
    with pytest.raises(GuestError):
        world.clone()
    folder = LabFolder("try")
    first = folder.within("fresh").credentials()
    assert folder.credentials().administrator_password == saved.credentials.administrator_password
    world.broken = False
    world.clone()
    assert folder.credentials().administrator_password != first.administrator_password
    world.broken = True
    with pytest.raises(GuestError):
        world.clone()
    world.broken = False
    world.clone(fresh_credentials=False)
    assert folder.credentials() == saved.credentials
    assert not folder.within("fresh").path.exists()


def test_a_copy_that_is_put_back_to_its_origin_s_snapshot_says_so(saved: Snapshot, world: World) -> None:
    said: list[Event] = []
    world.clone()
    copying.reset(READY, "try", world.site, said.append)
    (note,) = [one for one in said if isinstance(one, Note) and "passwords" in one.text]
    assert note.text == "The lab has the passwords and keys of 'lab@ready' again, not its own."
    assert LabFolder("try").credentials() == saved.credentials
    said.clear()
    copying.reset(READY, "try", world.site, said.append)
    assert not [one for one in said if isinstance(one, Note) and "passwords" in one.text]


@pytest.mark.parametrize(("words", "fresh"), [((), False), (("--fresh-credentials",), True)])
def test_the_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], fresh: bool
) -> None:
    asked: list[Any] = []

    def clone(own: Snapshots, labs: list[str], name: str | None, *, fresh_credentials: bool, **_: Any) -> list[Copied]:
        asked.append((labs, name, fresh_credentials))
        return [Copied("try", READY, 1.0, 3.0, True, fresh_credentials)]

    monkeypatch.setattr(Snapshots, "clone", clone)
    assert commands.run(monkeypatch, "clone", "lab@ready", "try", *words) == 0
    assert asked == [(["try"], "ready", fresh)]
    assert ("It has its own credentials." in capsys.readouterr().out) is fresh
