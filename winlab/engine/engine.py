"""The engine: runs small named steps, in parallel where they can, and tells what happens by events.

A step can say from reality whether it is done, so running all of them again is resuming. Nothing is undone when a step
fails or the person interrupts: the same command carries on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from winlab.errors import WinlabError
from winlab.events import Event, Kind, Listener, Progress
from winlab.threads import Threads

WORKERS = 8  # most steps wait for guests; those that compute hold a lock or a core of their own
REMIND = 1.0  # seconds between looks for an interrupt


class Stopped(Exception):
    """Raised inside a step that was asked to stop."""


@dataclass(frozen=True)
class Step:
    """One thing to be done.

    :param done: whether it is, by looking at reality. Called only when everything in *needs* is done.
    :param usual: how long it usually takes, in seconds; shown beside the time it has taken.
    """

    name: str
    run: Callable[[Progress], None]
    done: Callable[[], bool]
    needs: tuple[str, ...] = ()
    usual: float = 0.0


class _StepProgress:
    """A step's voice; also where a running step learns that it should stop."""

    def __init__(self, step: Step, tell: Listener, stop: threading.Event) -> None:
        self._step = step
        self._tell = tell
        self._stop = stop
        self._begun = time.monotonic()

    def say(self, text: str, fraction: float | None = None) -> None:
        """Tell what is being done or waited for.

        :raises Stopped: the person interrupted, or another step failed.
        """
        if self._stop.is_set():
            raise Stopped
        seconds = time.monotonic() - self._begun
        self._tell(Event(Kind.PROGRESS, self._step.name, text, seconds, self._step.usual, fraction))


def run(steps: Sequence[Step], tell: Listener) -> None:
    """Run the steps, each after those it needs.

    :raises WinlabError: a step failed; if several did, the others are its causes. Steps that were running are asked to
        stop, those that were not started stay undone.
    :raises KeyboardInterrupt: the person interrupted.
    """
    _check(steps)
    stop = threading.Event()
    lock = threading.Lock()

    def tell_locked(event: Event) -> None:
        with lock:
            tell(event)

    waiting = {step.name: step for step in steps}
    finished: set[str] = set()
    failures: list[BaseException] = []
    running: dict[Future[None], Step] = {}
    with Threads(max_workers=WORKERS) as pool:
        try:
            while running or (waiting and not failures):
                if not failures:
                    for step in [s for s in waiting.values() if finished.issuperset(s.needs)]:
                        del waiting[step.name]
                        running[pool.submit(_perform, step, tell_locked, stop)] = step
                ended, _ = wait(running, timeout=REMIND, return_when=FIRST_COMPLETED)
                for future in ended:
                    step = running.pop(future)
                    error = future.exception()
                    if error is None:
                        finished.add(step.name)
                    elif not isinstance(error, Stopped):
                        failures.append(error)
                        stop.set()
        except BaseException:
            stop.set()
            raise
    if failures:
        first = failures[0]
        if isinstance(first, WinlabError):
            first.causes = (*first.causes, *failures[1:])
        raise first


def _perform(step: Step, tell: Listener, stop: threading.Event) -> None:
    begun = time.monotonic()
    try:
        tell(Event(Kind.CHECKING, step.name, "looking whether it is done"))
        if step.done():
            tell(Event(Kind.SKIPPED, step.name, seconds=time.monotonic() - begun))
            return
        if stop.is_set():
            raise Stopped
        tell(Event(Kind.STARTED, step.name, usual=step.usual))
        step.run(_StepProgress(step, tell, stop))
    except Stopped:
        raise
    except BaseException as error:
        text = error.what if isinstance(error, WinlabError) else f"{type(error).__name__}: {error}"
        tell(Event(Kind.FAILED, step.name, text, time.monotonic() - begun, step.usual))
        raise
    tell(Event(Kind.DONE, step.name, seconds=time.monotonic() - begun, usual=step.usual))


def _check(steps: Sequence[Step]) -> None:
    """A step that needs one that is not there, or itself by a detour, would wait for ever: a bug, said at once."""
    names = [step.name for step in steps]
    assert len(names) == len(set(names)), f"two steps of one name: {sorted(names)}"
    left = {step.name: set(step.needs) for step in steps}
    while left:
        ready = [name for name, needs in left.items() if not needs & left.keys()]
        assert ready, f"steps need each other: {sorted(left)}"
        for name in ready:
            assert left[name] <= set(names), f"{name} needs a step that is not there: {sorted(left[name])}"
            del left[name]
