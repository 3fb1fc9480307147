"""How the lives of snapshots judge commands: here winlab is a fake that does what it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from survive import __main__ as survive
from survive import copies
from survive.command import Outcome, Wired
from survive.lives import LifeError, Stage
from survive.moments import BEGINNING, COMMAND, END, MIDDLE, PARTS, Point
from survive.record import Calm, Kill, Record
from survive.traces import Traces

from winlab.operations.snapshot import archive

SPEC = "--spec 1-0-1"
LAB, COPY = "survive", "survive-copy"
STEP = "restore controller-1"
STEPS = {"clone": STEP, "export": "export survive@base", "delete": "delete survive@new"}


class Winlab(Wired):
    """The command: its labs with the nodes that run, and its snapshots.

    :param broken: commands that fail, by their first word, with what they say.
    """

    def start(self) -> None:
        kept: dict[str, Any] = {"log": [], "labs": {}, "snapshots": {}, "broken": {}, "lost": 0, "half": b""}
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def run(self, *args: str, wanted: Iterable[Point] = (), **_: Any) -> Outcome:
        points = list(wanted)
        verb = args[1] if args[0] == "snapshot" else args[0]
        self.log.append(f"{verb} killed" if points else verb)  # type: ignore[attr-defined]
        if points:
            if self.half and verb == "export":  # type: ignore[attr-defined]
                Path(args[3]).write_bytes(self.half)  # type: ignore[attr-defined]
            return Outcome(-9, 0.0, 1.0, [], [(points[0], 1.0)])
        if said := self.broken.get(verb):  # type: ignore[attr-defined]
            return Outcome(1, 0.0, 1.0, [], [], errors=said)
        getattr(self, f"_{verb}")(args)
        steps = [{"event": "StepDone", "step": STEPS[verb], "seconds": 1.0}] if verb in STEPS else []
        return Outcome(0, 0.0, 2.0, steps, [])

    def _create(self, _: tuple[str, ...]) -> None:
        self.labs[LAB] = 1  # type: ignore[attr-defined]

    def _clone(self, args: tuple[str, ...]) -> None:
        self.labs[args[2]] = 1 - self.lost  # type: ignore[attr-defined]

    def _destroy(self, args: tuple[str, ...]) -> None:
        self.labs.pop(args[-1], None)  # type: ignore[attr-defined]

    def _reset(self, _: tuple[str, ...]) -> None: ...

    def _save(self, args: tuple[str, ...]) -> None:
        self.snapshots[f"{LAB}@{args[2]}"] = ""  # type: ignore[attr-defined]

    def _delete(self, args: tuple[str, ...]) -> None:
        name = args[2] if "@" in args[2] else f"{LAB}@{args[2]}"
        self.snapshots.pop(name)  # type: ignore[attr-defined]

    def _export(self, args: tuple[str, ...]) -> None:
        archive.write(Path(args[3]), {"memory": lambda: (piece for piece in [b"memory"])})


class Fake(Stage):
    """A stage with this command."""

    @property
    def winlab(self) -> Any:
        return self.wired

    def ask(self, *words: str) -> list[Any]:
        if words[0] == "status":
            return [{"state": "running", "answers": True}] * self.winlab.labs.get(words[2], 0)
        rows = self.winlab.snapshots.items()
        return [{"name": name, "problem": why} for name, why in rows if name.startswith(f"{words[2]}@")]

    def look(self) -> Traces:
        return {"volumes": frozenset(f"{name}.controller-1.memory" for name in self.winlab.snapshots)}


@pytest.fixture
def stage(tmp_path: Path) -> Fake:
    winlab = Winlab(tmp_path)
    winlab.start()
    return Fake(Record(tmp_path / "kills.jsonl"), winlab, LAB, ("--spec", "1-0-1"), lambda _: None)


def kills(stage: Stage) -> dict[Point, Kill]:
    return {kill.point: kill for kill in stage.record.kills()}


def test_the_points_of_a_verb() -> None:
    short, long = "store n", "save new"
    known = Calm("save", SPEC, 9.0, 1.0, {long: 6.0, short: 0.1})
    parts = [Point(long, part) for part in PARTS]
    ends = [Point(short, BEGINNING), Point(short, END), Point(COMMAND, END)]
    assert copies.points(known) == [
        Point(COMMAND, MIDDLE), Point(long, BEGINNING), *parts, Point(long, END), *ends
    ]  # fmt: skip


def test_each_point_is_followed_by_the_same_command(stage: Fake) -> None:
    copies.run(stage, ["clone"])
    every = copies.points(Calm("clone", SPEC, 2.0, 2.0, {STEP: 1.0}))
    assert kills(stage).keys() == set(every)
    assert all(kill.is_well for kill in stage.record.kills())
    cycle = ["clone killed", "clone", "destroy"]
    assert stage.winlab.log == [
        *["destroy"] * 2, "create", "save", "clone", "destroy", *cycle * len(every), *["destroy"] * 2, "delete"
    ]  # fmt: skip
    (whole,) = stage.record.wholes()
    assert (whole.left, whole.missed, whole.commands) == ([], [], 2 * len(every))
    stage.winlab.log.clear()
    copies.run(stage, ["clone"])
    assert stage.winlab.log == []


def test_a_snapshot_that_is_deleted_has_disks_of_its_own(stage: Fake) -> None:
    copies.run(stage, ["delete"])
    log = stage.winlab.log
    assert log[log.index("delete killed") - 2 :][:4] == ["save", "reset", "delete killed", "delete"]
    assert all(kill.is_well for kill in stage.record.kills())


def test_a_copy_without_its_machine_is_a_fault(stage: Fake) -> None:
    stage.record.add(Calm("clone", SPEC, 2.0, 2.0, {}))
    stage.winlab.lost = 1
    copies.run(stage, ["clone"])
    (first, *_) = stage.record.kills()
    assert first.fault == "the lab survive-copy: 0 of 1 nodes run and answer"
    assert stage.winlab.log.count("reset") == 2, "the lab is put back for the next kill"


def test_a_command_that_fails_is_a_fault(stage: Fake) -> None:
    stage.record.add(Calm("export", SPEC, 2.0, 2.0, {}))
    stage.winlab.broken["export"] = "It is full."
    copies.run(stage, ["export"])
    assert {kill.after for kill in stage.record.kills()} == {"It is full."}


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_is_complete_may_be_refused_and_nothing_else(stage: Fake, tmp_path: Path, is_whole: bool) -> None:
    archive.write(tmp_path / "whole", {"memory": lambda: (piece for piece in [b"memory"])})
    content = (tmp_path / "whole").read_bytes()
    stage.winlab.half = content if is_whole else content[:-2000]
    stage.record.add(Calm("export", SPEC, 2.0, 2.0, {}))
    stage.winlab.broken["export"] = "The file already exists."
    copies.run(stage, ["export"])
    assert {kill.is_well for kill in stage.record.kills()} == {is_whole}
    assert is_whole or "new.winlab: The exported snapshot" in stage.record.kills()[0].fault


def test_a_life_whose_preparation_fails_is_given_up(stage: Fake) -> None:
    stage.winlab.broken["reset"] = "It is off."
    with pytest.raises(LifeError, match=r"reset base --lab survive: It is off\."):
        copies.run(stage, ["delete"])


def test_a_reset_changes_only_numbers() -> None:
    before = {
        "volumes": frozenset({"survive.n.disk.qcow2", "survive.n.disk-2.qcow2"}),
        "ports": frozenset({"vnet7"}),
        "machines": frozenset({"4711"}),
    }
    after = {
        "volumes": frozenset({"survive.n.disk.qcow2", "survive.n.disk-9.qcow2"}),
        "ports": frozenset({"vnet12"}),
        "machines": frozenset({"4712"}),
    }
    assert copies.alike(before) == copies.alike(after)
    more = {**after, "volumes": after["volumes"] | {"survive.n.disk-10.qcow2"}}
    assert copies.alike(before) != copies.alike(more)


def test_the_lives_of_snapshots_are_a_group() -> None:
    assert survive._chosen("kill snapshots") == ["kill", *copies.LIVES]
    assert set(copies.verbs(LAB, Path())) == set(copies.LIVES)
