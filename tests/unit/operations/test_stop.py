"""Calls of the public API that another thread stops: they end, and the same call resumes."""

from __future__ import annotations

import inspect
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import changing
import plans
import pytest
import runs

from winlab import Event, Lab, Site, Spec, Stopped, Supplies, journal, stopping
from winlab.adapters import traces
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.checks.model import Stage
from winlab.events import RunEnded, StepDone, Told
from winlab.lab_folder import LabFolder
from winlab.operations import destroy
from winlab.supply.artifacts.bundle import file as bundles

SPEC = ("1-2-1", ["workers.os=debian-13"])


def test_a_stopped_create_ends_and_the_same_call_resumes(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LabFolder("lab")
    world = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    lab = Lab("lab", world.site())
    plan = lab.plan(Spec.load(*SPEC), facts=plans.TCG)
    stop, seen = threading.Event(), list[Event]()

    def listen(event: Event) -> None:
        seen.append(event)
        if isinstance(event, StepDone) and event.step == "network":
            stop.set()

    error = runs.error_of(lambda: lab.create(plan, until="guests", listener=listen, stop=stop))
    assert isinstance(error, Stopped)
    assert error.exit_code == 130
    assert world.acts == ["write design.json", "network"], "nothing starts after the stop"
    for ended in (seen[-1], list(journal.read(folder.journal))[-1]):
        assert isinstance(ended, RunEnded)
        assert (ended.exit_code, ended.failures) == (130, ())
    assert runs.error_of(lambda: lab.create(plan, until="guests", stop=threading.Event())) is None
    assert sorted(world.domains) == ["winlab-lab.controller-1", "winlab-lab.node-1", "winlab-lab.node-2"]
    assert not stopping.asked()


def test_a_stop_before_the_first_step_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = LabFolder("lab")
    world = changing.world(monkeypatch, folder, plans.TCG, plans.stock)
    lab = Lab("lab", world.site())
    plan = lab.plan(Spec.load(*SPEC), facts=plans.TCG)
    stop = threading.Event()
    stop.set()
    assert isinstance(runs.error_of(lambda: lab.create(plan, until="guests", stop=stop)), Stopped)
    assert list(journal.read(folder.journal)) == []
    assert world.domains == {}


def test_every_method_that_reports_while_it_works_can_be_stopped() -> None:
    for kind in (Lab, Supplies):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            parameters = inspect.signature(method).parameters
            assert ("stop" in parameters) == bool({"listener", "stdout"} & parameters.keys()), name
            assert "stop" not in parameters or parameters["stop"].kind is inspect.Parameter.KEYWORD_ONLY, name


def test_supplies_pass_on_what_stops_a_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stop, reads = threading.Event(), list[str]()

    def verify(_path: Path, progress: Any) -> None:
        reads.append("first")
        stop.set()
        progress.say("reading")
        reads.append("second")

    monkeypatch.setattr(bundles, "verify", verify)
    error = runs.error_of(lambda: Supplies(Site()).verify_bundle(tmp_path / "bundle.tar", stop=stop))
    assert isinstance(error, Stopped)
    assert reads == ["first"]


@pytest.mark.parametrize("progress", [Told(lambda _: None, "plan"), Stage(lambda _: None, "rows")])
def test_work_outside_a_run_ends_at_its_next_report(progress: Told | Stage) -> None:
    stop = threading.Event()
    with stopping.by(stop):
        progress.say("reading")
        stop.set()
        with pytest.raises(Stopped):
            progress.say("reading")


def test_a_stopped_destroy_leaves_the_rest_and_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    site, stop = Site(), threading.Event()
    removed: list[str] = []

    def remove(_lab: str, _hosts: object, _overlay: object, gone: Any, _left: Any) -> list[Any]:
        stop.set()
        for name in ("a", "b"):
            removed.append(name)
            gone("volume", name)
        return []

    monkeypatch.setattr(Site, "hypervisors", lambda _: nullcontext(Hypervisors(())))
    monkeypatch.setattr(destroy, "_refuse_others", lambda *_: None)
    monkeypatch.setattr(traces, "remove", remove)
    site.folder("lab").make()
    error = runs.error_of(lambda: Lab("lab", site).destroy(stop=stop))
    assert isinstance(error, Stopped)
    assert removed == ["a"]
    assert site.folder("lab").path.exists()
