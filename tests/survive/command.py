"""One command of winlab in a life: started, killed at the given points, and what it printed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess  # noqa: TID251 - starts winlab as people do
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from survive import targets
from survive.moments import Point

ROOT = Path(__file__).resolve().parents[2]
GRACE = 10.0  # seconds for what a killed winlab had started to end by itself
LIMIT = 7200.0  # seconds: a bound for a command that hangs
HEAL = 15.0  # seconds after which a daemon that was killed is started again, if the command did not end by itself


@dataclass
class Outcome:
    """What a command did.

    :param events: the lines that it printed.
    :param fired: the points at which something was killed, with the time of each (seconds since 1970).
    :param seconds: how long it ran.
    :param left: processes that it had started and that still ran :data:`GRACE` seconds after its end.
    """

    code: int
    begun: float
    seconds: float
    events: list[dict[str, Any]]
    fired: list[tuple[Point, float]]
    left: list[str] = field(default_factory=list)
    errors: str = ""

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of some kinds."""
        return [event for event in self.events if event["event"] in kinds]

    @property
    def failure(self) -> str:
        """The message of a failed command: what and cure, in one line."""
        ended = self.of("RunEnded")
        failures = ended[-1].get("failures", []) if ended else []
        text = "; ".join(f"{row['what']} [{row['cure']}]" for row in failures)
        return " ".join((text or self.errors.strip()[-400:] or f"exit code {self.code}").split())

    def begun_at(self, step: str) -> float | None:
        """When the command came to a step, in seconds since its start; None if it did not."""
        kinds = ("StepStarted", "StepSkipped")
        times = [event["time"] for event in self.of(*kinds) if event.get("step") == step]
        return times[0] - self.begun if times else None


@dataclass(frozen=True)
class Wired:
    """How winlab is run: as whom, with which folders.

    :param folder: for orders, and the temporary files of the command.
    :param prefix: words before the command.
    """

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def run(
        self,
        *args: str,
        wanted: Iterable[Point] = (),
        usual: Mapping[str, float] | None = None,
        spent: Mapping[str, float] | None = None,
        number: int = signal.SIGKILL,
        target: str = "",
        heal: tuple[str, ...] = (),
    ) -> Outcome:
        """Run ``winlab ARGS``, and kill it, or *target*, at the first point that comes.

        :param heal: the command that starts a killed daemon again. With it, more than one point may come in a run.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        for folder in (self.folder, temporary):
            folder.chmod(0o777)  # it may run as another user
        armed, fired, orders = (self.folder / name for name in ("armed", "fired", "orders.json"))
        fired.unlink(missing_ok=True)
        armed.touch()
        told = {"wanted": [list(point) for point in wanted], "usual": dict(usual or {}), "spent": dict(spent or {})}
        files = {"armed": str(armed), "fired": str(fired), "target": target, "signal": int(number)}
        orders.write_text(json.dumps({**told, **files}))
        mark = f"survive-{uuid.uuid4()}"
        begun = time.time()
        with (self.folder / "errors").open("w+") as errors:
            process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", "survive.wired", str(orders), *args],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
                env={**os.environ, **_paths(), "TMPDIR": str(temporary), "SURVIVE_MARK": mark, **self.env},
            )
            try:
                events, seconds = self._follow(process, armed, heal)
            finally:
                if process.poll() is None:  # Ctrl-C ends the harness, and the command has a session of its own
                    process.kill()
            errors.seek(0)
            said = errors.read()
        rows = fired.read_text().splitlines() if fired.exists() else []
        points = [(Point(row["step"], row["moment"]), row["time"]) for row in map(json.loads, rows)]
        outcome = Outcome(process.returncode, begun, seconds, events, points, errors=said)
        if points:
            outcome.left = _left(mark)
        return outcome

    def _follow(
        self, process: subprocess.Popen[str], armed: Path, heal: tuple[str, ...]
    ) -> tuple[list[dict[str, Any]], float]:
        """The events of a process until it ends, and how long that took."""
        events: list[dict[str, Any]] = []
        reader = threading.Thread(target=self._read, args=(process, events), daemon=True)
        reader.start()
        begun, killed = time.monotonic(), 0.0
        while process.poll() is None:
            if heal and not armed.exists():
                killed = killed or time.monotonic()
                if time.monotonic() - killed > HEAL:
                    subprocess.run(heal, check=True, capture_output=True)
                    armed.touch()
                    killed = 0.0
            if time.monotonic() - begun > LIMIT:
                process.kill()
            time.sleep(0.05)
        seconds = time.monotonic() - begun
        reader.join(GRACE)  # not forever: what it had started may hold the pipe
        return events, seconds

    def _read(self, process: subprocess.Popen[str], events: list[dict[str, Any]]) -> None:
        assert process.stdout is not None
        with (self.folder / "events.jsonl").open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                with contextlib.suppress(ValueError):  # the last line of a killed one may be half
                    event = json.loads(line)
                    if isinstance(event, dict) and "event" in event:
                        events.append(event)


def _paths() -> dict[str, str]:
    """The checkout and this package, for a process with another working folder."""
    known = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "tests"), known]))}


def _left(mark: str) -> list[str]:
    """Processes that a command started and that still run after a while. Machines belong to libvirt."""
    end = time.monotonic() + GRACE
    while rows := targets.marked(mark):
        if time.monotonic() > end:
            return [f"{pid} {words[:160]}" for pid, words in rows]
        time.sleep(0.2)
    return []
