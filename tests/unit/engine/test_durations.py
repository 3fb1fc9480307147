"""Usual times: learned from earlier runs, shown in the next."""

from __future__ import annotations

import json
from pathlib import Path

import plans
import pytest
import runs

from winlab.design.plan.model import Plan
from winlab.engine import durations
from winlab.engine.durations import Durations, Forecast
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import GuestError
from winlab.events import Quiet
from winlab.steps.serial import PhaseClock
from winlab.steps.states import ANSWERING, BOOTED, CNI, OBJECTS, PAYLOAD


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))


def test_the_median_of_the_last_times_counts() -> None:
    known = Durations("tcg")
    assert known.usual("booted", "debian-13") is None
    for seconds in (500, 10, 20, 30, *(40,) * 5, 90, 0.2):
        known.learn("booted", "debian-13", seconds)
    assert known.usual("booted", "debian-13") == 40
    assert Durations("tcg").usual("booted", "debian-13") == 40
    assert Durations("kvm").usual("booted", "debian-13") is None
    assert known.usual("booted") is None


@pytest.mark.parametrize("content", ["", "[]", '{"tcg": {"x": "y"}}', '{"tcg": {"x": {"": [null]}}}'])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/durations.json").write_text(content)
    known = Durations("tcg")
    assert known.usual("x") is None
    known.learn("x", "", 5)
    assert known.usual("x") == 5


def test_files_of_an_older_winlab_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    file = tmp_path / "state/durations.json"
    file.write_text(json.dumps({"tcg: boot debian-13": [80.0], "tcg": {"booted": {"debian-13": [90.0]}}}))
    known = Durations("tcg")
    assert known.usual("booted", "debian-13") == 90
    known.learn("booted", "debian-13", 100)
    assert json.loads(file.read_text()) == {"tcg": {"booted": {"debian-13": [90.0, 100.0]}}}


def test_a_folder_that_can_t_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "file/state"))
    Durations("tcg").learn("x", "", 5)
    assert Durations("tcg").usual("x") is None


def test_steps_are_learned_by_the_kind_of_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What node-1 took is expected of node-2, which is of the same kind; but a clone is not installed."""
    clock = runs.clock(monkeypatch, durations)
    plan = plans.make(plans.TCG, "1-2-1", "workers.os=windows-rehearsal")
    assert plan.builders
    forecast = Forecast(Durations("tcg"), [plan, plan.builders[0]])
    built = plan.builders[0].lab

    def step(state: State, takes: float = 0.0) -> Step:
        return Step(state, lambda _: clock.sleep(takes), lambda: False, usual=5.0)

    took = {
        BOOTED("lab", "node-1"): 40.0,
        BOOTED(built, "golden"): 900.0,
        BOOTED("lab", "controller-1"): 87.0,
        OBJECTS("lab"): 8.0,
        PAYLOAD(of="linux"): 900.0,  # the next is in the cache
    }
    for one in forecast.steps([step(state, seconds) for state, seconds in took.items()]):
        one.run(Quiet())
    asked = [BOOTED("lab", "node-2"), BOOTED(built, "golden"), BOOTED("lab", "controller-1"), OBJECTS("lab")]
    asked += [CNI("lab", "node-1"), PAYLOAD(of="linux")]
    assert [one.usual for one in forecast.steps([step(state) for state in asked])] == [40, 900, 87, 8, 5, 5]


def test_cases_of_a_step_have_times_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """ux N13: a resume of 1 s and a boot of an hour were one usual time."""
    clock = runs.clock(monkeypatch, durations)
    plan = plans.make(plans.TCG, "1-1-1")
    forecast = Forecast(Durations("tcg"), [plan])

    def step(case: str, takes: float = 0.0) -> Step:
        return Step(ANSWERING("lab", "node-1"), lambda _: clock.sleep(takes), lambda: False, usual=5.0, case=case)

    (boots,) = forecast.steps([step("booting", 600.0)])
    assert (boots.usual, boots.measured, boots.is_estimated) == (5, False, True)
    boots.run(Quiet())
    known, other = forecast.steps([step("booting"), step("")])
    assert (known.usual, known.is_estimated) == (600, False)
    assert (other.usual, other.is_estimated) == (5, True)


def test_failed_steps_teach_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = runs.clock(monkeypatch, durations)
    empty: list[Plan] = []

    def fail(_: object) -> None:
        clock.sleep(50)
        raise GuestError("no")

    (step,) = Forecast(Durations("tcg"), empty).steps([Step(OBJECTS("lab"), fail, lambda: False)])
    with pytest.raises(GuestError):
        step.run(Quiet())
    assert Durations("tcg").usual("cluster-objects") is None


def test_phases_of_windows_are_learned() -> None:
    now = [100.0]
    node = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal").node("node-1")

    def waited() -> list[float]:
        clock = PhaseClock(Durations("tcg"), node.time_class, lambda: now[0])
        usual = []
        for phase, seconds in (("firmware and boot loader", 20), ("specialize", 30), ("specialize", 31), ("ssh", 5)):
            usual.append(clock.usual(phase))
            now[0] += seconds
        clock.usual("ready")
        return usual

    assert waited() == [0, 0, 0, 0]
    # the first phase may have begun before winlab came to it
    assert waited() == [0, 61, 61, 5]
    assert Durations("tcg").usual("phase specialize", node.time_class) == 61
