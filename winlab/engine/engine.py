"""The engine: runs steps, in parallel where possible, and reports progress as events.

Each step can check whether it is done, so running all of them again resumes. Nothing is undone when a step fails or
the user interrupts: the same command resumes.
"""

from __future__ import annotations

import os
import pwd
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

from winlab import stopping
from winlab.engine.state import State
from winlab.engine.step import Load, Step, compose, planned
from winlab.errors import ExitCode, Failure, WinlabError, together
from winlab.events import (
    Event,
    Listener,
    RunEnded,
    RunStarted,
    StepChecking,
    StepDone,
    StepEvent,
    StepFailed,
    StepProgress,
    StepSkipped,
    StepStarted,
)
from winlab.stopping import Stopped
from winlab.threads import Threads
from winlab.version import __version__

REMIND = 1.0  # seconds between checks for an interrupt or a stop


class _Teller:
    """Reports the events of one run, one at a time, with the run's progress."""

    def __init__(self, tell: Listener, lab: str, total: int) -> None:
        self._listener = tell
        self._lab = lab
        self._total = total
        self._done = 0
        self._run = secrets.token_hex(4)
        self._begun = time.monotonic()
        self._lock = threading.Lock()

    def tell(self, event: Event) -> None:
        with self._lock:
            self._done += isinstance(event, (StepDone, StepSkipped))
            own = replace(event, lab=event.lab or self._lab, run=self._run, elapsed=time.monotonic() - self._begun)
            self._listener(replace(own, done=self._done, total=self._total))


class _Voice:
    """How a step reports its progress, and how a running step learns that it should stop."""

    def __init__(self, step: Step, number: int, teller: _Teller, stop: threading.Event) -> None:
        self._step = step
        self._number = number
        self._teller = teller
        self._stop = stop
        self._begun = time.monotonic()

    def check(self) -> None:
        """Check whether the step should continue.

        :raises Stopped: the user interrupted, another step failed, or the run was asked to stop.
        """
        if self._stop.is_set() or stopping.asked():  # in a step's own thread, only the former is known
            raise Stopped

    def say(self, text: str, fraction: float | None = None) -> None:
        """Report what is being done or waited for.

        :raises Stopped: as :meth:`check`.
        """
        self.check()
        self.tell(StepProgress(text=text, fraction=fraction))

    def tell(self, event: StepEvent) -> None:
        """Report an event of the step, with the step's names and times added."""
        state = self._step.reaches
        self._teller.tell(
            replace(
                event,
                number=self._number,
                step=self._step.title,
                reaches=state.kind.name,
                lab=state.lab,
                node=state.node,
                seconds=time.monotonic() - self._begun,
                usual=self._step.usual,
                estimated=self._step.is_estimated,
            )
        )


def run(steps: Iterable[Step], tell: Listener, lab: str = "", command: str = "") -> None:
    """Run the steps, each after those that reach what it needs.

    :param lab: the lab that the run is for; events of shared steps carry it, too.
    :param command: what the run is for, for other processes that watch it.
    :raises SequenceError: the steps don't fit together; none was started.
    :raises WinlabError: a step failed. Running steps are asked to stop unless they finish; those not started stay
        undone. If several failed, a :class:`winlab.errors.LabError` has all.
    :raises KeyboardInterrupt: the user interrupted.
    :raises Stopped: the work was asked to stop, and no step had failed before.
    """
    stopping.check()
    order = compose(steps)
    teller = _Teller(tell, lab, len(order))
    teller.tell(RunStarted(steps=planned(order), command=command, pid=os.getpid(), user=_user(), version=__version__))
    try:
        failures = _Run(order, teller).all()
    except (KeyboardInterrupt, Stopped):
        teller.tell(RunEnded(exit_code=int(ExitCode.INTERRUPTED)))
        raise
    except BaseException as unexpected:
        teller.tell(RunEnded(exit_code=int(ExitCode.FAILED), failures=(Failure.of(unexpected),)))
        raise
    if not failures:
        teller.tell(RunEnded())
        return
    error = together(failures)
    code = error.exit_code if isinstance(error, WinlabError) else ExitCode.FAILED
    teller.tell(RunEnded(exit_code=int(code), failures=Failure.each(error)))
    raise error


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


class _Run:
    """The steps of one run in progress."""

    def __init__(self, steps: Iterable[Step], teller: _Teller) -> None:
        self._waiting = list(steps)
        self._numbers = {step.reaches: number for number, step in enumerate(self._waiting, 1)}
        self._teller = teller
        self._reached: set[State] = set()
        self._running: dict[Future[None], Step] = {}
        self._stop = threading.Event()
        self._interrupted = threading.Event()  # stops also the steps that a failure does not
        self._failures: list[Exception] = []

    def all(self) -> list[Exception]:
        """Run them; returns the failures, the first one first."""
        with Threads(max_workers=sum(load.at_once for load in Load)) as pool:
            try:
                while self._running or (self._waiting and not self._failures):
                    for step in self._next():
                        self._waiting.remove(step)
                        self._running[pool.submit(self._perform, step)] = step
                    ended, _ = wait(self._running, timeout=REMIND, return_when=FIRST_COMPLETED)
                    if not self._failures:  # before the check of ended steps: the stop itself may make one fail
                        stopping.check()
                    for future in ended:
                        self._take(future)
            except BaseException:
                self._stop.set()
                self._interrupted.set()
                raise
        return self._failures

    def _next(self) -> list[Step]:
        """The steps that can start now, as far as their load allows."""
        if self._failures:
            return []
        taken = Counter(step.load for step in self._running.values())
        startable: list[Step] = []
        for step in self._waiting:
            if step.needs <= self._reached and taken[step.load] < step.load.at_once:
                taken[step.load] += 1
                startable.append(step)
        return startable

    def _take(self, future: Future[None]) -> None:
        step = self._running.pop(future)
        error = future.exception()
        if error is None:
            self._reached |= step.states
        elif isinstance(error, Stopped):
            pass
        elif isinstance(error, Exception):
            self._failures.append(error)
            self._stop.set()
        else:
            raise error

    def _perform(self, step: Step) -> None:
        stop = self._interrupted if step.finishes else self._stop
        voice = _Voice(step, self._numbers[step.reaches], self._teller, stop)
        try:
            with stopping.by(stop):
                voice.tell(StepChecking())
                if step.done():
                    voice.tell(StepSkipped())
                    return
                voice.check()
                voice.tell(StepStarted())
                step.run(voice)
        except Stopped:
            raise
        except BaseException as error:
            voice.tell(StepFailed(failure=Failure.of(error)))
            raise
        voice.tell(StepDone())
