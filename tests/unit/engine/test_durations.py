"""Usual times: learned from what happened, told before it happens again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import plans
import pytest

from winlab.engine import durations, engine
from winlab.engine.durations import Durations, Forecast
from winlab.engine.engine import Step
from winlab.events import Event, Kind
from winlab.steps import boot


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "state"))


def test_the_median_of_the_last_times_counts() -> None:
    known = Durations("tcg")
    assert known.usual("boot debian-13") is None
    for seconds in (500, 10, 20, 30, *(40,) * 5, 90, 0.2):
        known.learn("boot debian-13", seconds)
    assert known.usual("boot debian-13") == 40
    assert Durations("tcg").usual("boot debian-13") == 40
    assert Durations("kvm").usual("boot debian-13") is None


@pytest.mark.parametrize("content", ["", "[]", '{"tcg: x": "y"}', '{"tcg: x": [null]}'])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/durations.json").write_text(content)
    known = Durations("tcg")
    assert known.usual("x") is None
    known.learn("x", 5)
    assert known.usual("x") == 5


def test_a_folder_that_can_t_be_written_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("WINLAB_STATE", str(tmp_path / "file/state"))
    Durations("tcg").learn("x", 5)
    assert Durations("tcg").usual("x") is None


def test_steps_are_learned_by_what_their_nodes_are() -> None:
    """What node-1 took is expected of node-2, which is of the same kind; but a clone is not installed."""
    plan = plans.make(plans.TCG, "1-2-1", "workers.os=windows-rehearsal")
    assert plan.builder is not None
    known = Durations("tcg")
    forecast = Forecast(known, [*plan.nodes, *plan.builder.nodes])
    for step, seconds in (("boot node-1", 40.0), ("boot golden", 900.0), ("boot controller-1", 87.0), ("objects", 8.0)):
        forecast.listen(lambda _: None)(Event(Kind.DONE, step, seconds=seconds))
    forecast.listen(lambda _: None)(Event(Kind.SKIPPED, "boot node-1", seconds=7.0))
    forecast.listen(lambda _: None)(Event(Kind.DONE, "payload linux", seconds=900.0))  # the next is in the cache
    names = ("boot node-2", "boot golden", "boot controller-1", "objects", "cni node-1", "payload linux")
    steps = [Step(name, lambda _: None, lambda: False, usual=5.0) for name in names]
    assert [step.usual for step in forecast.steps(steps)] == [40, 900, 87, 8, 5, 5]


def test_what_is_heard_is_passed_on() -> None:
    heard: list[Event] = []
    listen = Forecast(Durations("tcg"), []).listen(heard.append)
    engine.run([Step("x", lambda _: None, lambda: False)], listen)
    assert [event.kind for event in heard] == [Kind.CHECKING, Kind.STARTED, Kind.DONE]


def test_phases_of_windows_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(boot, "time", SimpleNamespace(monotonic=lambda: now[0]))
    plan = plans.make(plans.TCG, "1-1-1", "workers.os=windows-rehearsal")
    node = plan.node("node-1")

    def waited() -> list[str]:
        context = SimpleNamespace(plan=plan, scale=1.0, known=Durations("tcg"))
        wait = boot._Wait(cast(Any, context), node)
        said = []
        for phase, seconds in (("firmware and boot loader", 20), ("specialize", 30), ("specialize", 31), ("ssh", 5)):
            said.append(wait._clock(phase))
            now[0] += seconds
        wait._clock("ready")
        return said

    assert waited() == ["", "", "", ""]
    # the first phase may have begun before winlab came to it
    assert waited() == ["", ", a phase of usually 61 s", ", a phase of usually 61 s", ", a phase of usually 5 s"]
    assert Durations("tcg").usual(f"phase specialize {durations.kind(node)}") == 61
