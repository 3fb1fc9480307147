"""The lives of a lab: it is made while things are killed, one kill a command, until it is Ready; and destroyed."""

from __future__ import annotations

import os
import signal
import subprocess  # noqa: TID251 - heals the host as people do, asks for labs
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import results

from survive import targets, twice
from survive.command import Outcome, Wired
from survive.moments import COMMAND, END, MIDDLE, Point, points, stays_done
from survive.planted import Scan
from survive.record import Calm, Kill, Record, Whole
from survive.traces import Traces, left, traces

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
HEAL = (sys.executable, "-m", "winlab", "host", "setup")  # the cure of a failed command
TRIES = 3  # commands in a row that may fail before a life is given up
PASSES = 2  # how often a lab is created again for points that did not come
CREATE, DESTROY, ABANDON = "create", "destroy", "abandon"


@dataclass(frozen=True)
class Stage:
    """Where lives take place.

    :param lab: the name of the lab, which no one else uses.
    :param spec: the words of ``create`` that say what it is.
    :param scan: looks for the lab's secrets after each kill.
    """

    record: Record
    wired: Wired
    lab: str
    spec: tuple[str, ...]
    say: Callable[[str], None]
    scan: Scan | None = None

    @property
    def made_of(self) -> str:
        """The spec as one text."""
        return " ".join(self.spec)

    def create(self, **how: object) -> Outcome:
        """Run ``winlab create``; see :meth:`Wired.run`."""
        return self.wired.run("create", *self.spec, "--lab", self.lab, **how)  # type: ignore[arg-type]

    def destroy(self, **how: object) -> Outcome:
        """Run ``winlab destroy``; see :meth:`Wired.run`."""
        return self.wired.run("destroy", "--lab", self.lab, **how)  # type: ignore[arg-type]

    def heal(self, daemon: str) -> None:
        """Start a daemon that was killed, as the message of the failed command says."""
        if not targets.find(daemon):
            subprocess.run(HEAL, check=True, capture_output=True)

    def look(self) -> Traces:
        """The current state of the host, with winlab's own folders."""
        cache = self._folder("WINLAB_CACHE", ".cache/winlab")
        folders = {
            "tmp": self.wired.folder / "tmp",
            "state": self.state / "labs",
            "snapshots": self.state / "snapshots",
            "staging": cache / "staging",
            "extracted": cache / "artifacts" / "staging",
        }
        return {
            **traces(),
            **{kind: _names(folder) for kind, folder in folders.items()},
            "/tmp": _names(Path("/tmp")),
            "machines": frozenset(map(str, targets.find(f"guest {self.lab}"))),
        }

    def left(self, before: Traces) -> list[str]:
        """Everything that appeared or vanished."""
        return left(before, self.look(), self.lab)

    def secrets(self) -> list[str]:
        """The places that have secrets of the lab and must not."""
        return self.scan(self.state, self.lab) if self.scan is not None else []

    @property
    def state(self) -> Path:
        """The folder of the labs' own folders."""
        return self._folder("WINLAB_STATE", ".local/state/winlab")

    def execute(self, node: str) -> Callable[..., str]:
        """Runs commands in a node of the lab; an empty text if it can't."""

        def run(*words: str) -> str:
            return self._said("exec", "--lab", self.lab, node, "--", *words)

        return run

    def ask(self, *words: str) -> list[Any]:
        """The items of the result of ``winlab WORDS``; none if it fails.

        :raises ValueError: it does not answer.
        """
        return results.document(self._said(*words, "--output", "json")).get("items", [])

    def _said(self, *words: str) -> str:
        command, env = [*self.wired.prefix, sys.executable, "-m", "winlab", *words], {**os.environ, **self.wired.env}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300).stdout

    def _folder(self, variable: str, default: str) -> Path:
        return Path(self.wired.env.get(variable) or os.environ.get(variable) or Path.home() / default)


def _names(folder: Path) -> frozenset[str]:
    """The names in a folder; without those of services that come and go by themselves."""
    names = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return frozenset(name for name in names if not name.startswith(("systemd-private-", "snap-private-tmp")))


class LifeError(Exception):
    """A life that could not be brought to its end."""


def calm(stage: Stage) -> Calm:
    """A lab made and destroyed without any kill, to compare the rest with; remembered from an earlier run."""
    if (known := stage.record.calm(CREATE, stage.made_of)) is not None:
        return known
    stage.say("nothing is killed, for the times")
    stage.destroy()
    made = stage.create()
    if made.code:
        raise LifeError(made.failure)
    row = Calm(CREATE, stage.made_of, made.seconds, before_steps(made), worked(made), begins(made))
    gone = stage.destroy()
    if gone.code:
        raise LifeError(gone.failure)
    steps = {event["step"]: 0.0 for event in gone.of("StepDone")}
    stage.record.add(Calm(DESTROY, stage.made_of, gone.seconds, gone.seconds / 2, steps))
    stage.record.add(row)
    return row


def before_steps(outcome: Outcome) -> float:
    """How long a command took until its first step."""
    started = outcome.of("RunStarted")
    return started[0]["time"] - outcome.begun if started else outcome.seconds


def worked(outcome: Outcome) -> dict[str, float]:
    """How long each step took that a command did."""
    return {event["step"]: event["seconds"] for event in outcome.of("StepDone")}


def begins(outcome: Outcome) -> dict[str, float]:
    """How long after a command's first step each one began."""
    first = outcome.begun + before_steps(outcome)
    return {event["step"]: event["time"] - first for event in outcome.of("StepStarted")}


def creation(stage: Stage, life: str, wanted: Iterable[Point] | None = None) -> None:
    """Make a lab while winlab is killed at one point a command, until all points are over; destroy it."""
    known = calm(stage)
    every = set(points(known.steps) if wanted is None else wanted)
    for number in range(PASSES):
        missing = every - stage.record.over(life, stage.made_of)
        if not missing:
            return
        stage.say(f"{life}, lab {number + 1}: {len(missing)} of {len(every)} points are left")
        _Creation(stage, life, known, missing).play()


class _Creation:
    """One lab, made by as many commands as there are kills, and one."""

    def __init__(self, stage: Stage, life: str, known: Calm, missing: set[Point]) -> None:
        self._stage = stage
        self._life = life
        self._missing = missing
        self._usual = {**known.steps, COMMAND: known.before}
        self._target = {"guest": f"guest {stage.lab}"}.get(life, "" if life in SIGNALS else life)
        self._heal = HEAL if life in targets.DAEMONS else ()
        self._done: set[str] = set()
        self._spent: Counter[str] = Counter()
        self._pending: list[Kill] = []
        self._watched: set[str] = set()
        self._seconds, self._commands = 0.0, 0

    def play(self) -> None:
        """Until the lab is Ready; then destroy it, and record what is left."""
        stage = self._stage
        if (gone := stage.destroy()).code:
            raise LifeError(gone.failure)
        before, failures = stage.look(), 0
        while True:
            outcome = self._command()
            if not outcome.fired:
                if outcome.code == 0:
                    break
                failures += 1
                stage.say(f"  failed: {outcome.failure}")
                if failures == TRIES:
                    raise LifeError(outcome.failure)
            else:
                failures = 0
        seen = [line for node in self._watched for line in twice.seen(stage.execute(node))]
        if (gone := stage.destroy()).code:
            raise LifeError(gone.failure)
        missed = sorted(map(list, self._missing))
        whole = Whole(self._life, stage.made_of, self._seconds, self._commands, missed, seen, stage.left(before))
        stage.record.add(whole)
        stage.say(f"  Ready after {self._commands} commands, {self._seconds:.0f} s; left: {whole.left or 'nothing'}")

    def _command(self) -> Outcome:
        """One ``create``, with the next kill."""
        stage = self._stage
        number = SIGNALS.get(self._life, signal.SIGKILL)
        outcome = stage.create(
            wanted=self._missing,
            usual=self._usual,
            spent=self._spent,
            number=number,
            target=self._target,
            heal=self._heal,
        )
        self._missing -= {point for point, _ in outcome.fired}
        self._seconds += outcome.seconds
        self._commands += 1
        self._take(outcome)
        if self._heal:
            stage.heal(self._target)
        return outcome

    def _take(self, outcome: Outcome) -> None:
        """Record how this command handled the last kill, and remember its own."""
        again = [event["step"] for event in outcome.of("StepStarted") if event["step"] in self._done]
        ended = {event["step"]: event["seconds"] for event in outcome.of("StepDone", "StepFailed")}
        for event in outcome.of("StepStarted"):
            step = event["step"]
            self._spent[step] += ended.get(step, outcome.begun + outcome.seconds - event["time"])
        for kill in self._pending:
            self._stage.record.add(self._finished(kill, outcome, again, ended))
        self._pending = [
            Kill(
                self._life, self._stage.made_of, point.step, point.moment, SIGNALS.get(self._life, signal.SIGKILL).name,
                at=round(when - outcome.begun, 1), ended=round(outcome.begun + outcome.seconds - when, 1),
                code=outcome.code, said="" if outcome.code in (0, -9, 130) else outcome.failure, processes=outcome.left,
                secrets=self._stage.secrets(),
            )
            for point, when in outcome.fired
        ]  # fmt: skip
        self._done |= {event["step"] for event in outcome.of("StepDone", "StepSkipped") if stays_done(event["step"])}
        for point, _ in outcome.fired:
            self._stage.say(f"  {self._life}: {point.step}, {point.moment} (code {outcome.code}) {outcome.left or ''}")
        self._watch()

    def _finished(self, kill: Kill, outcome: Outcome, again: list[str], ended: dict[str, float]) -> Kill:
        restart = outcome.begun_at(kill.step)
        lost = outcome.seconds if restart is None else restart
        if kill.step in ended:
            lost += max(0.0, self._spent[kill.step] - self._usual.get(kill.step, 0.0))
        after = "killed" if outcome.fired else "ready" if outcome.code == 0 else outcome.failure
        return replace(kill, after=after, again=[] if self._life == "guest" else again, lost=round(lost, 1))

    def _watch(self) -> None:
        """Look into the nodes that have booted for what runs twice."""
        nodes = {step.removeprefix("boot ") for step in self._done if step.startswith("boot controller")}
        wanted = nodes if self._life == "guest" else nodes - self._watched  # a new boot has nothing of the last one
        self._watched |= {node for node in wanted if twice.watch(self._stage.execute(node))}


def abandonment(stage: Stage, within: float) -> None:
    """Kill ``create`` at its points, destroy what there is, and compare the host with what it was before.

    :param within: of steps that begin later than so many seconds after the first, only the middle counts: for each
        point the lab is created again.
    """
    known = calm(stage)
    usual = {**known.steps, COMMAND: known.before}
    over = stage.record.over(ABANDON, stage.made_of)
    chosen = [
        point
        for point in points(known.steps)
        if point not in over and (point.moment == MIDDLE or known.begins.get(point.step, 0.0) <= within)
    ]
    stage.destroy()
    before = stage.look()
    for point in chosen:
        outcome = stage.create(wanted=[point], usual=usual)
        if not outcome.fired:
            stage.say(f"  {point.step}, {point.moment}: did not come")
        when = outcome.fired[0][1] if outcome.fired else outcome.begun
        secrets = stage.secrets()
        gone = stage.destroy()
        kill = Kill(
            ABANDON, stage.made_of, point.step, point.moment, "SIGKILL", at=round(when - outcome.begun, 1),
            ended=0.0, code=outcome.code, processes=outcome.left, lost=round(gone.seconds, 1), secrets=secrets,
            after="gone" if gone.code == 0 else gone.failure, left=stage.left(before),
        )  # fmt: skip
        if outcome.fired:
            stage.record.add(kill)
            stage.say(
                f"  {ABANDON}: {point.step}, {point.moment}: {kill.left or 'nothing left'} {kill.processes or ''}"
            )


def destruction(stage: Stage) -> None:
    """Kill ``destroy`` at each of its steps, and run it again."""
    calm(stage)
    every = stage.record.calm(DESTROY, stage.made_of)
    assert every is not None
    wanted = {Point(COMMAND, MIDDLE), *(Point(step, END) for step in every.steps)}
    missing = wanted - stage.record.over(DESTROY, stage.made_of)
    if not missing:
        return
    stage.destroy()
    before = stage.look()
    if (made := stage.create()).code:
        raise LifeError(made.failure)
    pending: Kill | None = None
    seconds, commands = 0.0, 0
    while True:
        gone = stage.destroy(wanted=missing, usual={COMMAND: every.before})
        seconds, commands = seconds + gone.seconds, commands + 1
        again = [event["step"] for event in gone.of("StepDone") if pending and event["step"] == pending.step]
        if pending is not None:
            after = "killed" if gone.fired else "gone" if gone.code == 0 else gone.failure
            left_now = [] if gone.fired else stage.left(before)
            stage.record.add(replace(pending, after=after, again=again, left=left_now, lost=round(gone.seconds, 1)))
        if not gone.fired:
            break
        point, when = gone.fired[0]
        missing.discard(point)
        stage.say(f"  destroy: {point.step}, {point.moment}")
        pending = Kill(
            DESTROY, stage.made_of, point.step, point.moment, "SIGKILL", at=round(when - gone.begun, 1),
            ended=0.0, code=gone.code, processes=gone.left,
        )  # fmt: skip
    if gone.code:
        raise LifeError(gone.failure)
    missed = sorted(map(list, missing))
    stage.record.add(Whole(DESTROY, stage.made_of, seconds, commands, missed, [], stage.left(before)))


def middles(known: Calm) -> list[Point]:
    """The points at which daemons and machines are killed."""
    return [Point(step, MIDDLE) for step in known.steps]
