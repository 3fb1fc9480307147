"""How long things took on this machine before: what progress gives as the usual time.

::

    <state>/durations.json      {"tcg: boot windows-2022 installed": [812.4, 790.1], ...}    seconds, the newest last

What is not known yet is guessed by the step itself. Nothing depends on these numbers: a file that can't be read or
written is as good as none.
"""

from __future__ import annotations

import json
import statistics
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from winlab import files, settings
from winlab.design.plan.model import NodePlan
from winlab.engine.engine import Step
from winlab.events import Event, Kind, Listener

KEPT = 9  # of each kind
SHORTEST = 1.0  # seconds: what is quicker needs no forecast


def kind(node: NodePlan) -> str:
    """What nodes that take equally long have in common: the image, and whether Windows is installed or cloned."""
    if node.windows is None:
        return node.image
    return f"{node.image} {'cloned' if node.windows.golden else 'installed'}"


class Durations:
    """What took how long, for one accelerator.

    :param accelerator: ``kvm`` or ``tcg``; guests differ by a factor of ten between them.
    """

    def __init__(self, accelerator: str) -> None:
        self.accelerator = accelerator
        self._path = settings.state_dir() / "durations.json"
        self._lock = threading.Lock()

    def usual(self, what: str) -> float | None:
        """The median of the last times, in seconds; None if it was never seen."""
        with self._lock:
            known = self._read().get(self._key(what))
        return statistics.median(known) if known else None

    def learn(self, what: str, seconds: float) -> None:
        """Keep how long it took this time."""
        if seconds < SHORTEST:
            return
        with self._lock, suppress(OSError):
            every = self._read()
            every[self._key(what)] = [*every.get(self._key(what), []), round(seconds, 1)][-KEPT:]
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.write_atomic(self._path, json.dumps(every, indent=1, sort_keys=True) + "\n")

    def _key(self, what: str) -> str:
        return f"{self.accelerator}: {what}"

    def _read(self) -> dict[str, list[float]]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return {str(key): [float(one) for one in times] for key, times in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


def _varies(step: str) -> bool:
    """Whether the last time says nothing: images and programs are in the cache, or have to be made first."""
    return step.startswith(("image ", "payload "))


class Forecast:
    """The usual times of a run's steps, and where they are learned."""

    def __init__(self, known: Durations, nodes: Iterable[NodePlan]) -> None:
        self._known = known
        self._kinds = {node.name: kind(node) for node in nodes}

    def steps(self, steps: Iterable[Step]) -> list[Step]:
        """The steps with the times that they took before, where that is known."""
        return [step if _varies(step.name) else self._informed(step) for step in steps]

    def _informed(self, step: Step) -> Step:
        return replace(step, usual=self._known.usual(self._what(step.name)) or step.usual)

    def listen(self, tell: Listener) -> Listener:
        """A listener that learns from what it hears, and passes it on."""

        def hear(event: Event) -> None:
            if event.kind is Kind.DONE and not _varies(event.step):
                self._known.learn(self._what(event.step), event.seconds)
            tell(event)

        return hear

    def _what(self, step: str) -> str:
        """``boot node-1`` → ``boot windows-2022 cloned``."""
        verb, _, name = step.rpartition(" ")
        return f"{verb} {self._kinds[name]}" if name in self._kinds else step
