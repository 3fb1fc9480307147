"""The results: a line of JSON for each, so that ``make survive`` resumes where it was interrupted."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from survive.moments import Point, only_looks


@dataclass(frozen=True)
class Calm:
    """A command that nothing disturbed.

    :param seconds: how long it took.
    :param steps: the steps that it had to do, and how long each took.
    :param before: how long it took until its first step.
    :param begins: seconds from then until each step began.
    """

    life: str
    spec: str
    seconds: float
    before: float
    steps: dict[str, float]
    begins: dict[str, float] = field(default_factory=dict)
    kind: str = "calm"


@dataclass(frozen=True)
class Kill:
    """One kill, and how the next command handled it.

    :param at: seconds from the command's start to the kill.
    :param ended: seconds from the kill to the command's end.
    :param code: the command's exit code; a negative one is a signal's number.
    :param said: the cure that it printed, if it failed rather than was killed.
    :param processes: what it had started and still ran ten seconds later.
    :param after: how the next command ended: ``ready``, ``killed`` at the next point as was planned, or its failure.
    :param again: steps that were done before the kill, and that the next command did once more.
    :param lost: seconds of work that were done twice, and that the next command took to get back to it.
    :param left: what was on the host after ``destroy`` and not before.
    :param secrets: places that had a secret of the lab right after the kill, and must not have one.
    """

    life: str
    spec: str
    step: str
    moment: str
    signal: str
    at: float
    ended: float
    code: int
    said: str = ""
    processes: list[str] = field(default_factory=list)
    after: str = ""
    again: list[str] = field(default_factory=list)
    lost: float = 0.0
    left: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    kind: str = "kill"

    @property
    def point(self) -> Point:
        """Where it was."""
        return Point(self.step, self.moment)

    @property
    def fault(self) -> str:
        """The failures; empty if there are none."""
        failed = "" if self.after in ("ready", "killed", "gone") else f"the next command: {self.after}"
        steps = [step for step in self.again if not only_looks(step)]
        again = f"done again: {', '.join(steps)}" if steps else ""
        return "; ".join(filter(None, (failed, again, *self.left, *self.processes, *self.secrets)))

    @property
    def is_well(self) -> bool:
        """Whether everything went as it should."""
        return not self.fault


@dataclass(frozen=True)
class Whole:
    """A life that has come to its end.

    :param seconds: of all its commands together.
    :param commands: how many there were.
    :param twice: what a look into the guests saw run twice at once.
    :param left: what was on the host after the last ``destroy`` and not before.
    """

    life: str
    spec: str
    seconds: float
    commands: int
    missed: list[list[str]]
    twice: list[str]
    left: list[str]
    kind: str = "whole"


class Record:
    """The file with the lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: Calm | Kill | Whole) -> None:
        """Add a line; it is on the disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _rows(self, kind: str) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        rows = []
        for line in self.path.read_text().splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the harness itself was killed while it wrote
                continue
            if row.get("kind") == kind:
                rows.append(row)
        return rows

    def calm(self, life: str, spec: str) -> Calm | None:
        """The undisturbed command of a life; the last one counts."""
        rows = [Calm(**row) for row in self._rows("calm") if (row["life"], row["spec"]) == (life, spec)]
        return rows[-1] if rows else None

    def kills(self) -> list[Kill]:
        """All kills, the last one for each point of a life."""
        last = {(row["life"], row["spec"], row["step"], row["moment"]): Kill(**row) for row in self._rows("kill")}
        return list(last.values())

    def over(self, life: str, spec: str) -> set[Point]:
        """The points of a life that need no second time: those with a fault do."""
        return {kill.point for kill in self.kills() if (kill.life, kill.spec) == (life, spec) and kill.is_well}

    def calms(self) -> list[Calm]:
        """The undisturbed commands, the last one for each life."""
        return list({(row["life"], row["spec"]): Calm(**row) for row in self._rows("calm")}.values())

    def wholes(self) -> list[Whole]:
        """The lives that ended, the last one of each kind."""
        return list({(row["life"], row["spec"]): Whole(**row) for row in self._rows("whole")}.values())
