"""The step that shuts a machine down."""

from __future__ import annotations

import time
from collections.abc import Iterable

from winlab.adapters.guests.connect import connect
from winlab.adapters.guests.systems import ways
from winlab.adapters.vm import domains, power
from winlab.design.render.domain import serial_log
from winlab.engine import wait
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import StalledError, WinlabError
from winlab.events import Progress
from winlab.steps.paused import await_memory, require_writable_disk
from winlab.steps.power.subject import Subject
from winlab.steps.serial import SerialLog
from winlab.steps.states import STOPPED

SILENCE = 180.0  # seconds on hardware without a sign of life until a shutdown has failed
AGAIN = 45.0  # seconds on hardware until a guest is asked again: one that is starting ignores its power button
LOGIN = 15  # seconds for a login to be made
POLL = 1.0


def step(subject: Subject, after: Iterable[State] = (), *, force: bool = False) -> Step:
    """The step that shuts a machine down; a suspended one is resumed for that.

    :param force: cut its power instead.
    """

    def work(progress: Progress) -> None:
        if force:
            progress.say(f"cutting the power of {subject.name}")
            power.cut_power(subject.host.conn, subject)
            return
        shut_down(subject, progress)

    def done() -> bool:
        return subject.state in domains.OFF

    return Step(subject.at(STOPPED), work, done, after, usual=subject.lab.pace.usual(15))


def shut_down(subject: Subject, progress: Progress) -> None:
    """Shut a machine down, and wait until it is off; a suspended one is resumed for that.

    One that crashed can't be asked, so its power is cut.

    :raises StalledError: it does not shut down.
    :raises HostError: it is paused, and its disk can't be written.
    """
    if subject.state == domains.CRASHED:
        progress.say(f"{subject.name} crashed: cutting its power")
        power.cut_power(subject.host.conn, subject)
        return
    if subject.state in domains.PAUSED:
        require_writable_disk(subject.host, subject)
        await_memory(subject.host, subject, progress)
        power.resume(subject.host.conn, subject)
    _Shutdown(subject, progress).run()


class _Shutdown:
    """One clean shutdown: the guest is asked for it until it is off."""

    def __init__(self, subject: Subject, progress: Progress) -> None:
        self._subject = subject
        self._lab = subject.lab
        self._progress = progress
        self._serial = SerialLog(self._subject.host.pool, serial_log(self._lab.name, subject.name))
        self._asked: float | None = None  # when the guest was last asked

    def run(self) -> None:
        stall = self._lab.pace.silence(SILENCE)
        wait.until(self._look, self._progress, lambda _: self._stalled(stall), stall=stall, poll=POLL)

    def _look(self) -> Met[None] | Waiting:
        if self._subject.state in domains.OFF:
            return Met(None)
        if self._asked is None or time.monotonic() - self._asked > self._lab.pace.silence(AGAIN):
            self._progress.say(f"asked {self._subject.name} to shut down {self._ask()}")
            self._asked = time.monotonic()
        self._serial.read()
        written = domains.written_bytes(self._subject.host.conn, self._subject)
        return Waiting(f"waiting for {self._subject.name} to shut down", (self._serial.size, written))

    def _ask(self) -> str:
        """Ask the guest over its login, or if that fails, by its power button. Returns how it was asked."""
        tag = self._subject.machine.tag
        try:
            guest = connect(tag, self._lab.folder, timeout=LOGIN)
            try:
                if guest.execute([ways(tag.system).shut_down]) == 0:
                    return f"by {tag.system.login}"
            finally:
                guest.close()
        except WinlabError:
            pass  # it does not answer, is shutting down, or this account has no credentials for it
        power.press_power(self._subject.host.conn, self._subject)
        return "by its power button"

    def _stalled(self, seconds: float) -> StalledError:
        node, lab = self._subject.name, self._lab.name
        return StalledError(
            f"'{node}' does not shut down.",
            why=f"For {seconds:.0f} s there was nothing new on its serial port, and nothing was written to its disk.",
            cure=f"Look at its screen with 'winlab vnc {node} --lab {lab}'. 'winlab stop {node} --lab {lab} --force' "
            "cuts its power.",
            evidence=f"winlab serial {node} --log --lab {lab}",
        )
