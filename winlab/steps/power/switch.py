"""The steps that start, resume and suspend a machine."""

from __future__ import annotations

import time
from collections.abc import Iterable

from winlab.adapters.vm import domains, power
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import GuestError
from winlab.events import Progress
from winlab.steps.crashed import tell_crash
from winlab.steps.paused import await_memory, require_writable_disk
from winlab.steps.power.subject import Subject
from winlab.steps.states import STARTED, SUSPENDED


def start(subject: Subject, after: Iterable[State] = ()) -> Step:
    """The step that starts a machine that is off or crashed, and resumes one that is suspended or paused."""

    def work(progress: Progress) -> None:
        state = subject.state
        if state in domains.PAUSED:
            require_writable_disk(subject.host, subject)
            await_memory(subject.host, subject, progress)
        tell_crash(subject.host.conn, subject, progress)
        progress.say(f"{subject.name} is {state}")
        subject.since, subject.booted = time.time(), state in (*domains.OFF, domains.CRASHED)
        power.start(subject.host.conn, subject)

    def done() -> bool:
        return subject.state == "running"

    return Step(subject.at(STARTED), work, done, after, usual=3)


def suspend(subject: Subject) -> Step:
    """The step that suspends a machine: its memory stays, its processors stop."""

    def work(progress: Progress) -> None:
        state = subject.state
        if state != "running":
            raise GuestError(
                f"'{subject.name}' is {state}: only a running node can be suspended.",
                cure="Wait until it is off or runs; 'winlab status' says which.",
            )
        progress.say(f"stopping the processors of {subject.name}")
        power.suspend(subject.host.conn, subject)

    def done() -> bool:
        return subject.state in domains.PAUSED

    return Step(subject.at(SUSPENDED), work, done, usual=1)
