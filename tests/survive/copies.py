"""The lives of a lab's snapshots: each verb is killed at its points, and the same command must then do all of it.

They share one lab with one snapshot. What a verb made is removed again before its next kill, so the host must look the
same each time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from survive.command import Outcome
from survive.lives import LifeError, Stage, before_steps, begins, worked
from survive.moments import BEGINNING, COMMAND, END, MIDDLE, PARTS, Point
from survive.record import Calm, Kill, Whole
from survive.traces import Traces, left
from winlab.errors import WinlabError
from winlab.operations.snapshot import archive

LIVES = ("save", "reset", "clone", "delete", "export", "import")
BASE, NEW = "base", "new"  # snapshots of the lab
LEAST = 0.2  # seconds: a shorter step has no parts
# what another start of a machine, or another generation of a disk, changes
NUMBERS = (
    (r"vnet\d+", "vnet"),
    (r"\b(disk|store)-\d+\.qcow2", r"\1.qcow2"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "uuid"),
    (r"^\d+$", "process"),
)
Words = tuple[str, ...]


@dataclass(frozen=True)
class Verb:
    """A verb of snapshots.

    :param words: the command.
    :param before: the commands that make what it needs.
    :param after: the commands that use what it made, and remove it.
    :param makes: the snapshots that exist after it, besides the first one.
    :param copies: the labs that run after it, besides the first one.
    :param file: what it writes.
    """

    words: Words
    before: tuple[Words, ...] = ()
    after: tuple[Words, ...] = ()
    makes: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    file: Path | None = None


def verbs(lab: str, folder: Path) -> dict[str, Verb]:
    """The verbs by their lives.

    :param folder: where exported files are.
    """
    at, copy = ("--lab", lab), f"{lab}-copy"
    save, drop = ("snapshot", "save", NEW, *at), ("snapshot", "delete", NEW, *at)
    to_new, to_base = ("reset", NEW, *at), ("reset", BASE, *at)
    twin, file = f"{copy}@{NEW}", folder / "new.winlab"
    gone = ("destroy", "--lab", copy)
    return {
        "save": Verb(save, after=(to_new, to_base, drop), makes=(f"{lab}@{NEW}",)),
        "reset": Verb(to_base),
        "clone": Verb(("clone", f"{lab}@{BASE}", copy), after=(gone,), copies=(copy,)),
        # the lab does not need the disks that the snapshot froze any more: they must go with it
        "delete": Verb(drop, before=(save, to_base)),
        "export": Verb(("snapshot", "export", BASE, str(file), *at), file=file),
        "import": Verb(
            ("snapshot", "import", str(folder / "base.winlab"), "--as", twin),
            after=(("clone", twin, copy), gone, ("snapshot", "delete", twin)),
            makes=(twin,),
        ),
    }


def run(stage: Stage, lives: Sequence[str]) -> None:
    """Make a lab and its snapshot, run the lives that have points left, and destroy the lab."""
    lives = [life for life in lives if _missing(stage, life) != []]
    if not lives:
        return
    folder = stage.wired.folder / "files"
    folder.mkdir(parents=True, exist_ok=True)
    every = verbs(stage.lab, folder)
    _clear(stage, folder)
    before = stage.look()
    if (made := stage.create()).code:
        raise LifeError(made.failure)
    _must(stage, ("snapshot", "save", BASE, "--lab", stage.lab))
    if "import" in lives:
        _must(stage, ("snapshot", "export", BASE, str(folder / "base.winlab"), "--lab", stage.lab))
    nodes = len(_nodes(stage, stage.lab))
    done = [_Life(stage, life, every[life], nodes).run() for life in lives]
    _clear(stage, folder)
    rest = stage.left(before)
    for whole in done:
        stage.record.add(replace(whole, left=rest))


def _missing(stage: Stage, life: str) -> list[Point] | None:
    """The points of a life that are left; None if its steps are not known yet."""
    known, over = stage.record.calm(life, stage.made_of), stage.record.over(life, stage.made_of)
    return None if known is None else [point for point in points(known) if point not in over]


def _clear(stage: Stage, folder: Path) -> None:
    """Remove the labs, their snapshots, and the files."""
    for lab in _labs(stage):
        _must(stage, ("destroy", "--lab", lab))
    for name in _snapshots(stage):
        _must(stage, ("snapshot", "delete", name))
    for path in folder.glob("*.winlab"):
        path.unlink()


def _put_back(stage: Stage) -> None:
    """The lab with its first snapshot alone, whatever failed before."""
    _must(stage, ("destroy", "--lab", f"{stage.lab}-copy"))
    for name in _snapshots(stage).keys() - {f"{stage.lab}@{BASE}"}:
        _must(stage, ("snapshot", "delete", name))
    _must(stage, ("reset", BASE, "--lab", stage.lab))


def _must(stage: Stage, words: Words) -> Outcome:
    """A command that nothing disturbs, and that must succeed."""
    done = stage.wired.run(*words)
    if done.code:
        raise LifeError(f"{' '.join(words)}: {done.failure}")
    return done


def _labs(stage: Stage) -> tuple[str, str]:
    """The lab and its copy."""
    return stage.lab, f"{stage.lab}-copy"


def _snapshots(stage: Stage) -> dict[str, str]:
    """Their snapshots, and what is wrong with each."""
    return {row["name"]: row["problem"] for lab in _labs(stage) for row in stage.ask("snapshot", "list", lab)}


def _nodes(stage: Stage, lab: str) -> list[dict[str, object]]:
    """The nodes of a lab that run and answer."""
    rows = stage.ask("status", "--lab", lab)  # a lab that does not exist has none
    return [row for row in rows if row["state"] == "running" and row["answers"]]


class _Life:
    """One verb.

    :param nodes: how many nodes the lab has.
    """

    def __init__(self, stage: Stage, life: str, verb: Verb, nodes: int) -> None:
        self._stage = stage
        self._life = life
        self._verb = verb
        self._nodes = nodes
        self._seconds, self._commands = 0.0, 0

    def run(self) -> Whole:
        """Kill it at each point that is left; returns what is known of the life."""
        stage, known = self._stage, self._calm()
        missing = _missing(stage, self._life) or []
        stage.say(f"{self._life}: {len(missing)} of {len(points(known))} points are left")
        missed = [list(point) for point in missing if not self._kill(point, known)]
        return Whole(self._life, stage.made_of, round(self._seconds, 1), self._commands, missed, [], [])

    def _calm(self) -> Calm:
        """The verb without a kill."""
        stage, life = self._stage, self._life
        if (known := stage.record.calm(life, stage.made_of)) is not None:
            return known
        self._prepare()
        made = _must(stage, self._verb.words)
        if wrong := self._wrong() + list(self._finish()):
            raise LifeError("; ".join(wrong))
        row = Calm(life, stage.made_of, made.seconds, before_steps(made), worked(made), begins(made))
        stage.record.add(row)
        return row

    def _prepare(self) -> None:
        for words in self._verb.before:
            _must(self._stage, words)

    def _kill(self, point: Point, known: Calm) -> bool:
        """Kill it at one point, and run it again; returns whether the point came."""
        stage, verb = self._stage, self._verb
        before = alike(stage.look())
        self._prepare()
        outcome = stage.wired.run(*verb.words, wanted=[point], usual={**known.steps, COMMAND: known.before})
        faults = self._partial()
        with ThreadPoolExecutor(1) as pool:  # at once: libvirt may still be doing what the killed one had asked for
            secrets = pool.submit(stage.secrets)
            again = stage.wired.run(*verb.words) if outcome.fired else outcome
        wrong = self._wrong()
        is_done = again.code == 0 or ("already" in again.failure and not wrong)  # what is complete is not made again
        faults += [*wrong, *self._finish()]
        faults += left(before, alike(stage.look()), *_labs(stage))
        if faults or not is_done:
            _put_back(stage)
        self._seconds += outcome.seconds + again.seconds
        self._commands += 2
        if not outcome.fired:
            stage.say(f"  {point.step}, {point.moment}: did not come {faults or ''}")
            return False
        kill = Kill(
            self._life, stage.made_of, point.step, point.moment, "SIGKILL",
            at=round(outcome.fired[0][1] - outcome.begun, 1), ended=0.0, code=outcome.code, processes=outcome.left,
            after="ready" if is_done else again.failure, lost=round(again.seconds, 1), left=faults,
            secrets=secrets.result(),
        )  # fmt: skip
        stage.record.add(kill)
        stage.say(f"  {self._life}: {point.step}, {point.moment}: {kill.fault or 'nothing is wrong'}")
        return True

    def _partial(self) -> list[str]:
        """A file that looks finished, right after the kill, and is not."""
        file = self._verb.file
        return damage(file) if file is not None and file.exists() else []

    def _wrong(self) -> list[str]:
        """What is not as it should be after the command."""
        verb, stage = self._verb, self._stage
        return [*self._wrong_snapshots(), *(damage(verb.file) if verb.file is not None else [])] + [
            f"the lab {lab}: {running} of {self._nodes} nodes run and answer"
            for lab in (stage.lab, *verb.copies)
            if (running := len(_nodes(stage, lab))) != self._nodes
        ]

    def _wrong_snapshots(self) -> Iterator[str]:
        rows = _snapshots(self._stage)
        wanted = {f"{self._stage.lab}@{BASE}", *self._verb.makes}
        for name in sorted(wanted ^ rows.keys()):
            yield f"the snapshot {name} {'is listed' if name in rows else 'is not listed'}"
        for name in sorted(wanted & rows.keys()):
            if rows[name]:
                yield f"the snapshot {name}: {rows[name]}"

    def _finish(self) -> Iterator[str]:
        """Use what was made, and remove it; yields what fails."""
        for words in self._verb.after:
            done = self._stage.wired.run(*words)
            if done.code:
                yield f"{' '.join(words)}: {done.failure}"
        if self._verb.file is not None:
            self._verb.file.unlink(missing_ok=True)
            yield from (f"left: {path.name}" for path in self._verb.file.parent.glob(f"*{self._verb.file.name}*"))


def points(known: Calm) -> list[Point]:
    """All points of a verb."""
    every = [Point(COMMAND, MIDDLE)]
    for step, seconds in known.steps.items():
        every += [Point(step, moment) for moment in (BEGINNING, *(PARTS if seconds >= LEAST else ()), END)]
    return [*every, Point(COMMAND, END)]


def alike(now: Traces) -> Traces:
    """What the host has, without the numbers that a reset changes."""

    def plain(rows: Iterable[str]) -> frozenset[str]:
        counted = Counter(map(_plain, rows))
        return frozenset(row if number == 1 else f"{row} ({number} times)" for row, number in counted.items())

    return {kind: plain(rows) for kind, rows in now.items()}


def _plain(row: str) -> str:
    for pattern, instead in NUMBERS:
        row = re.sub(pattern, instead, row)
    return row


def damage(file: Path) -> list[str]:
    """What is wrong with an exported file; empty if it is whole."""
    try:
        with archive.opened(file) as whole:
            for name in whole.rows:
                for _ in whole.chunks(name):
                    pass
    except WinlabError as error:
        return [f"{file.name}: {error.what}"]
    return []
