"""How long things took on this machine before, which progress shows as the usual time.

::

    <state>/durations.json      seconds, the newest last, by accelerator, kind of state, and class of node
        {"tcg": {"booted": {"windows-2022 installed": [812.4, 790.1]}, "network": {"": [1.2]}}}

A class is that of the node's plan and, for some steps, the case: ``windows-2022 cloned resumed``.

Until a time is known, the step's own estimate is used. Nothing depends on these numbers: a file that can't be read or
written is ignored, and so are entries in an older winlab's format.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from winlab import documents, files, settings
from winlab.design.plan.model import Plan
from winlab.engine.step import Step
from winlab.events import Progress

KEPT = 9  # of each kind
LONGEST = 1e8  # seconds: three years
SHORTEST = 1.0  # seconds: anything quicker needs no forecast

Times = dict[str, dict[str, dict[str, list[float]]]]  # accelerator -> kind -> class -> seconds


class Durations:
    """How long things took, for one accelerator.

    :param accelerator: ``kvm`` or ``tcg``; guests differ by a factor of ten between them.
    """

    def __init__(self, accelerator: str) -> None:
        self.accelerator = accelerator
        self._path = settings.state_dir() / "durations.json"
        self._lock = threading.Lock()

    def usual(self, kind: str, of: str = "") -> float | None:
        """The median of the last times, in seconds; None if there are none.

        :param kind: a kind of state, or anything else that takes time.
        :param of: the class of the node.
        """
        with self._lock:
            known = self._read().get(self.accelerator, {}).get(kind, {}).get(of)
        return statistics.median(known) if known else None

    def learn(self, kind: str, of: str, seconds: float) -> None:
        """Record how long it took this time."""
        if seconds < SHORTEST:
            return
        with self._lock, suppress(OSError):
            every = self._read()
            times = every.setdefault(self.accelerator, {}).setdefault(kind, {})
            times[of] = [*times.get(of, []), round(seconds, 1)][-KEPT:]
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.write_atomic(self._path, json.dumps(every, indent=1, sort_keys=True) + "\n")

    def _read(self) -> Times:
        try:
            recorded = documents.from_json(self._path.read_text(encoding="utf-8"))
            return {
                accelerator: {
                    kind: {of: [_seconds(one) for one in times] for of, times in classes.items()}
                    for kind, classes in kinds.items()
                }
                for accelerator, kinds in recorded.items()
                if isinstance(kinds, dict)  # an older winlab had lists there
            }
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _seconds(value: object) -> float:
    """A number of seconds; a damaged file may contain anything.

    :raises ValueError, TypeError: it is not a number.
    """
    if not isinstance(value, int | float) or not 0 <= value < LONGEST:
        raise ValueError(f"{value!r} is not a number of seconds")
    return float(value)


class Forecast:
    """The usual times of a run's steps, and the recording of new ones.

    :param plans: whose nodes the steps are for.
    """

    def __init__(self, known: Durations, plans: Iterable[Plan]) -> None:
        self._known = known
        self._classes = {(plan.lab, node.name): node.time_class for plan in plans for node in plan.nodes}

    def steps(self, steps: Iterable[Step]) -> list[Step]:
        """The steps with the times that they took before, where known; they also record this run's times."""
        return [self._informed(step) if step.reaches.kind.learned else step for step in steps]

    def _informed(self, step: Step) -> Step:
        kind = step.reaches.kind.name
        of = f"{self._classes.get((step.reaches.lab, step.reaches.node), '')} {step.case}".strip()

        def run(progress: Progress) -> None:
            begun = time.monotonic()
            step.run(progress)
            self._known.learn(kind, of, time.monotonic() - begun)

        known = self._known.usual(kind, of)
        return replace(step, run=run, usual=known or step.usual, measured=known is not None)
