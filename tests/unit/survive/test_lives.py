"""How the harness judges commands: here their results are given, none is run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from survive import lives, twice
from survive.command import Outcome, Wired
from survive.lives import LifeError, Stage
from survive.moments import BEGINNING, COMMAND, END, MIDDLE, Point
from survive.record import Calm, Kill, Record
from survive.traces import Traces

from winlab.errors import ExitCode

SPEC = "--spec 1-0-1"
CALM = Calm("create", SPEC, 100.0, 1.0, {"network": 1.0, "boot n": 60.0}, {"network": 0.0, "boot n": 2.0})
READY = {"event": "RunEnded", "exit_code": 0, "time": 0.0}


def told(
    *steps: tuple[str, str, float], fired: Iterable[Point] = (), code: int = 0, seconds: float = 10.0, left: str = ""
) -> Outcome:
    """A command that began at 0: (event, step, when)."""
    events = [{"event": kind, "step": step, "time": when, "seconds": 1.0} for kind, step, when in steps]
    return Outcome(code, 0.0, seconds, [*events, READY], [(point, 5.0) for point in fired], [left] if left else [])


class Played(Stage):
    """A stage on which nothing runs."""

    def play(self, created: list[Outcome], destroyed: list[Outcome] | None = None) -> None:
        calls: dict[str, Any] = {"wanted": [], "healed": [], "looks": []}
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "left_over", [])
        object.__setattr__(self, "created", created)
        object.__setattr__(self, "destroyed", destroyed)

    def create(self, **how: Any) -> Outcome:
        self.calls["wanted"].append(set(how.get("wanted", ())))  # type: ignore[attr-defined]
        return self.created.pop(0)  # type: ignore[attr-defined,no-any-return]

    def destroy(self, **how: Any) -> Outcome:
        return self.destroyed.pop(0) if self.destroyed else told()  # type: ignore[attr-defined]

    def heal(self, daemon: str) -> None:
        self.calls["healed"].append(daemon)  # type: ignore[attr-defined]

    def look(self) -> Traces:
        return {}

    def left(self, before: Traces) -> list[str]:
        return list(self.left_over)  # type: ignore[attr-defined]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr(twice, "watch", lambda _execute: True)
    monkeypatch.setattr(twice, "seen", lambda _execute: [])
    made = Played(Record(tmp_path / "kills.jsonl"), Wired(tmp_path), "survive", ("--spec", "1-0-1"), lambda _: None)
    made.record.add(CALM)
    return made


NETWORK_END, BOOT_MIDDLE = Point("network", END), Point("boot n", MIDDLE)
FIRST = told(("StepStarted", "network", 1.0), ("StepDone", "network", 2.0), fired=[NETWORK_END], code=-9)
SECOND = told(("StepSkipped", "network", 2.0), ("StepStarted", "boot n", 3.0), fired=[BOOT_MIDDLE], code=-9)
LAST = told(("StepSkipped", "network", 2.0), ("StepStarted", "boot n", 4.0), ("StepDone", "boot n", 9.0))


def kills(stage: Stage) -> dict[Point, Kill]:
    return {kill.point: kill for kill in stage.record.kills()}


def test_a_life_continues_until_the_lab_is_ready(stage: Played) -> None:
    stage.play([FIRST, SECOND, LAST])
    lives.creation(stage, "kill", [NETWORK_END, BOOT_MIDDLE])
    assert stage.calls["wanted"] == [{NETWORK_END, BOOT_MIDDLE}, {BOOT_MIDDLE}, set()]  # type: ignore[attr-defined]
    seen = kills(stage)
    assert [seen[NETWORK_END].after, seen[BOOT_MIDDLE].after] == ["killed", "ready"]
    assert all(kill.is_well for kill in seen.values())
    # two seconds until the next command was there again; four, because boot n took not even its usual time
    assert [seen[NETWORK_END].lost, seen[BOOT_MIDDLE].lost] == [2.0, 4.0]
    assert stage.record.wholes()[0].commands == 3


def test_lives_that_were_run_are_not_run_again(stage: Played) -> None:
    stage.play([FIRST, SECOND, LAST])
    lives.creation(stage, "kill", [NETWORK_END, BOOT_MIDDLE])
    lives.creation(stage, "kill", [NETWORK_END, BOOT_MIDDLE])


def test_finished_work_that_is_done_again_is_a_fault(stage: Played) -> None:
    again = told(("StepStarted", "network", 2.0), ("StepDone", "network", 3.0))
    stage.play([FIRST, again, told()])
    lives.creation(stage, "kill", [NETWORK_END])
    assert kills(stage)[NETWORK_END].again == ["network"]
    assert kills(stage)[NETWORK_END].fault == "done again: network"


def test_a_next_command_that_fails_is_a_fault(stage: Played) -> None:
    failed = told(code=int(ExitCode.GUEST), seconds=30.0)
    failed.events[-1] |= {"exit_code": 9, "failures": [{"what": "It is off.", "cure": "Wait."}]}
    stage.play([FIRST, failed, told(), FIRST, LAST])
    lives.creation(stage, "kill", [NETWORK_END])
    assert kills(stage)[NETWORK_END].is_well  # the second lab's counts
    rows = stage.record.path.read_text()
    assert "It is off. [Wait.]" in rows


def test_a_life_that_does_not_end_is_given_up(stage: Played) -> None:
    stage.play([FIRST, *(told(code=9) for _ in range(lives.TRIES))])
    with pytest.raises(LifeError):
        lives.creation(stage, "kill", [NETWORK_END])


def test_processes_left_behind_are_a_fault(stage: Played) -> None:
    first = told(("StepDone", "network", 2.0), fired=[NETWORK_END], code=-9, left="12 qemu-img convert")
    stage.play([first, LAST] * lives.PASSES)
    lives.creation(stage, "kill", [NETWORK_END])
    assert kills(stage)[NETWORK_END].fault == "12 qemu-img convert"


def test_a_daemon_is_started_again_as_people_do(stage: Played) -> None:
    """The command may fail, then; the next one must not."""
    stage.play([told(("StepStarted", "boot n", 1.0), fired=[BOOT_MIDDLE], code=5), LAST])
    lives.creation(stage, "ovn-northd", [BOOT_MIDDLE])
    assert stage.calls["healed"] == ["ovn-northd"] * 2  # type: ignore[attr-defined]
    assert kills(stage)[BOOT_MIDDLE].is_well


def test_the_points_of_abandoned_labs(stage: Played) -> None:
    """Of steps that come late, only the middle: each point takes a lab of its own."""
    stage.play([told(fired=[BOOT_MIDDLE], code=-9) for _ in range(20)])
    lives.abandonment(stage, 1.0)
    points = [point for (point,) in map(tuple, stage.calls["wanted"])]  # type: ignore[attr-defined]
    late = [point for point in points if point.step == "boot n"]
    assert late == [BOOT_MIDDLE]
    assert Point("network", BEGINNING) in points


def test_leftovers_of_an_abandoned_lab_are_a_fault(stage: Played) -> None:
    stage.play([told(fired=[BOOT_MIDDLE], code=-9) for _ in range(20)])
    stage.left_over.append("+ volumes: survive.n.disk")  # type: ignore[attr-defined]
    lives.abandonment(stage, 0.0)
    assert kills(stage)[BOOT_MIDDLE].fault == "+ volumes: survive.n.disk"


def test_destroy_is_killed_until_nothing_is_left_to_remove(stage: Played) -> None:
    stage.record.add(Calm("destroy", SPEC, 4.0, 2.0, {"remove domain d": 0.0, "remove network w": 0.0}))
    domain, network = Point("remove domain d", END), Point("remove network w", END)
    stage.play([told()])
    stage.play(
        [told()],
        [
            told(),
            told(("StepDone", "remove domain d", 1.0), fired=[domain], code=-9),
            told(("StepDone", "remove network w", 1.0), fired=[network], code=-9),
            told(),
        ],
    )
    lives.destruction(stage)
    assert {kill.point: kill.after for kill in stage.record.kills()} == {domain: "killed", network: "gone"}
    assert stage.record.wholes()[0].missed == [[COMMAND, MIDDLE]]
