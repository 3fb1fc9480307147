"""The steps of add-ons: in the recipe of a lab, and each by itself."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, cast

import plans
import pytest
import runs
import yaml
from distributions import Distribution, install_motd

from winlab.adapters.kube import workloads
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.addons import apply, record
from winlab.addons import recipe as addons
from winlab.addons.api import Installation
from winlab.design.catalog.artifact import Manifest, Obtained
from winlab.engine.step import Step, compose
from winlab.errors import ClusterError, GuestError
from winlab.steps import recipe
from winlab.steps.sources import Supply
from winlab.steps.states import API, READY, ROUTES

pytestmark = pytest.mark.usefixtures("fresh_registry")
SUPPLY = Supply(cast(Any, None))
AVAILABLE = {"type": "Available", "status": "True"}


class Server(Kubectl):
    """An API server that runs what is applied: each look at an object is a moment later for it."""

    def __init__(self) -> None:
        super().__init__(Path("kubectl"), Path("kubeconfig"))
        self.objects: dict[str, dict[str, Any]] = {}
        self.late = 2  # queries until a thing is available
        self.busy = 0  # queries that are not answered

    def run(self, *words: str, stdin: str | None = None, limit: float = 60) -> str:
        sent = {f"{one['kind'].lower()} {one['metadata']['name']}": one for one in yaml.safe_load_all(stdin or "")}
        if words[0] == "apply":
            self.objects.update(sent)
            return ""
        if words[0] == "diff":
            if any(self.objects.get(name) != one for name, one in sent.items()):
                raise ClusterError("kubectl failed.", why="they differ")
            return ""
        if self.busy:
            self.busy -= 1
            raise ClusterError("kubectl failed.", why="etcdserver: request timed out")
        self.late -= 1
        late = {"type": "Available", "status": "False", "reason": "MissingEndpoints", "message": f"look {self.late}"}
        conditions = [late if self.late > 0 else AVAILABLE]
        return json.dumps({**self.objects[f"{words[1]} {words[2]}"], "status": {"conditions": conditions}})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    monkeypatch.setattr(Kubectl, "of", lambda _folder: made)
    return made


@pytest.fixture
def motd(distribution: partial[Distribution]) -> None:
    install_motd(distribution)


class Say:
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str, fraction: float | None = None) -> None:
        self.said.append(text)


def of(*changes: str) -> list[Step]:
    return addons.steps(runs.run(plans.make(plans.KVM, "1-1-1", *changes)), SUPPLY)


# --- in the recipe


def test_a_lab_without_add_ons_has_no_such_step() -> None:
    assert of() == []


@pytest.mark.usefixtures("motd")
def test_steps_of_add_ons_find_their_place_in_the_recipe() -> None:
    run = runs.run(plans.make(plans.KVM, "1-1-1", "addons={metrics-server: {}, motd: {text: hello}}"))
    own = addons.steps(run, SUPPLY)
    assert [step.title for step in own] == ["add-ons", "add-on metrics-server", "message of the day", "add-on motd"]
    order = compose([*recipe.guests(run), *recipe.cluster(run, SUPPLY), *own, *recipe.golden_upload(run)])
    titles = [step.title for step in order]
    assert titles.index("kubeconfig") < titles.index("add-ons")
    assert titles.index("ready controller-1") < titles.index("add-on metrics-server")


def test_an_add_on_for_linux_does_not_wait_for_windows() -> None:
    record_step, step = of("addons.metrics-server={}")
    assert record_step.needs == {API("lab")}
    assert step.needs == {ROUTES("lab"), READY("lab", "controller-1")}


@pytest.mark.usefixtures("motd")
@pytest.mark.parametrize("system", ["debian-13", "windows-rehearsal"])
def test_an_add_on_waits_for_its_own_machines(system: str) -> None:
    *_, step = of(f"addons.motd={{text: hello, machines: 2, system: {system}}}")
    own = {READY("lab", "motd-1"), READY("lab", "motd-2")}
    assert step.needs == {ROUTES("lab"), READY("lab", "controller-1"), *own}


# --- by themselves


def test_the_cluster_says_which_add_ons_it_has(server: Server) -> None:
    step = of("addons.metrics-server.resolution=20")[0]
    assert not step.done()
    step.run(Say())
    assert step.done()
    kept = server.objects["configmap winlab-addons"]
    assert kept["metadata"]["namespace"] == "kube-system"
    assert kept["data"] == {"metrics-server": '{"resolution": 20}'}


def test_winlab_test_reads_what_is_recorded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    of("addons.metrics-server.resolution=20")[0].run(Say())
    text = json.dumps(server.objects["configmap winlab-addons"])
    monkeypatch.setattr(server, "run", lambda *words, **_: text)
    assert {name: one.resolution for name, one in record.read(server).items()} == {"metrics-server": 20}


def test_manifests_are_applied_and_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.clock(monkeypatch)
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    step = of("addons.metrics-server={}")[1]
    server.busy = 2
    voice = Say()
    assert not step.done()
    step.run(voice)
    assert step.done()
    assert "deployment metrics-server" in server.objects
    assert "waiting for the API server: etcdserver: request timed out" in voice.said
    assert any("Deployment metrics-server: MissingEndpoints" in text for text in voice.said)


def test_an_add_on_that_does_not_start_is_reported_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = runs.clock(monkeypatch)
    monkeypatch.setattr(domains, "state", lambda *_: "running")
    monkeypatch.setattr(server, "get", lambda *_: {"kind": "Deployment", "metadata": {}, "status": {}})
    begun = clock.now
    with pytest.raises(ClusterError, match="'metrics-server' does not become ready") as error:
        of("addons.metrics-server={}")[1].run(Say())
    assert "nothing has been reported" in error.value.why
    assert clock.now - begun >= apply.SILENCE


def test_an_add_on_is_not_waited_for_in_a_cluster_whose_controller_is_off(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.clock(monkeypatch)
    monkeypatch.setattr(domains, "state", lambda *_: "off")
    server.busy = 1_000_000
    with pytest.raises(GuestError, match="'controller-1' is off"):
        of("addons.metrics-server={}")[1].run(Say())
    assert server.busy == 999_999


@pytest.mark.usefixtures("motd")
def test_an_add_ons_own_step_gets_what_it_requires(tmp_path: Path) -> None:
    asked: list[Any] = []

    def obtain(wanted: Any, progress: Any) -> list[Obtained]:
        asked.extend(wanted)
        return []

    plan = plans.make(plans.KVM, "1-1-1", "addons.motd.text=hello")
    installation = Installation(runs.run(plan), plan.addons[0], obtain)
    from winlab.design.addon import registry

    one = cast(Any, registry()["motd"])
    told, _ = one.steps(one.Settings(text="hello"), installation)
    voice = Say()
    told.run(voice)
    assert asked == [Manifest("motd", "v1.2.0", "rules.yaml")]
    assert voice.said == ["hello"]


# --- what runs


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"kind": "Deployment", "status": {"conditions": [AVAILABLE]}}, ""),
        ({"kind": "APIService", "status": {"conditions": [AVAILABLE]}}, ""),
        ({"kind": "APIService", "status": {}}, "nothing has been reported"),
        (
            {"kind": "Deployment", "generation": 2, "status": {"observedGeneration": 1, "conditions": [AVAILABLE]}},
            "has not seen it",
        ),
        ({"kind": "DaemonSet", "status": {}}, "has not seen it"),
        (
            {
                "kind": "DaemonSet",
                "status": {"observedGeneration": 1, "desiredNumberScheduled": 2, "numberReady": 1},
            },
            "1 of 2 pods",
        ),
        ({"kind": "StatefulSet", "spec": {"replicas": 3}, "status": {"readyReplicas": 1}}, "1 of 3 pods"),
        ({"kind": "StatefulSet", "spec": {}, "status": {"readyReplicas": 1}}, ""),
    ],
)
def test_unready_workloads_are_explained(item: dict[str, Any], problem: str) -> None:
    generation = {"generation": item["generation"]} if "generation" in item else {}
    found = workloads.workload_problem({**item, "metadata": generation})
    assert problem in found
    assert bool(problem) == bool(found)
