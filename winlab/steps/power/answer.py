"""The step that waits until a machine answers, and sets its clock."""

from __future__ import annotations

import time
from contextlib import suppress

from winlab import settings
from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.connect import connect
from winlab.adapters.vm import domains, first_boot, power
from winlab.design.render.domain import serial_log
from winlab.engine import wait
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError
from winlab.events import Progress
from winlab.steps.crashed import require_no_crash
from winlab.steps.cut_off import READY
from winlab.steps.paused import require_writable_disk
from winlab.steps.power import clock
from winlab.steps.power.subject import Subject
from winlab.steps.serial import SerialLog
from winlab.steps.states import ANSWERING, STARTED

POLL = 2.0
LOGIN = 10  # seconds for a login to be made
REFUSED = 240.0  # seconds on hardware: a guest may refuse the login while it starts
PANICKED = 15.0  # seconds after which a panic at the end of the log does not belong to an earlier boot
RESETS = 2  # of an emulated machine
RESUMED = 5.0  # seconds until a machine answers that was suspended
BOOTS = "booting"  # a case of steps that wait for a machine: their times are not those of a resumed one


def step(subject: Subject, *, boots: bool | None = None) -> Step:
    """The step that waits until a machine answers a verified login, and sets its clock to the host's.

    :param boots: whether the machine boots before; None: if it is off now.
    """
    boots = subject.machine.state in domains.OFF if boots is None else boots

    def work(progress: Progress) -> None:
        _Wait(subject, progress).run()

    def done() -> bool:
        try:
            guest = _login(subject)
        except GuestError:
            return False
        try:
            return not clock.difference(guest, subject.machine.tag, subject.skew)
        except GuestError:
            return False
        finally:
            _close(guest)

    usual = subject.lab.pace.usual(subject.machine.tag.system.usual_boot) if boots else RESUMED
    case = BOOTS if boots else ""
    return Step(subject.at(ANSWERING), work, done, [subject.at(STARTED)], usual=usual, case=case)


def _login(subject: Subject) -> Guest:
    return connect(subject.machine.tag, subject.lab.folder, timeout=LOGIN)


def _close(guest: Guest) -> None:
    with suppress(WinlabError):  # the answer is known by now
        guest.close()


class _Wait:
    """One wait for a machine, with what has been seen of it so far."""

    def __init__(self, subject: Subject, progress: Progress) -> None:
        self._subject = subject
        self._lab = subject.lab
        self._progress = progress
        self._limit = self._lab.pace.silence(settings.stall_seconds())
        self._serial = SerialLog(self._subject.host.pool, serial_log(self._lab.name, subject.name))
        self._begun = self._answered = time.monotonic()
        self._resets = 0

    def run(self) -> None:
        wait.until(self._look, self._progress, lambda _: self._stalled(), stall=self._limit, poll=POLL)

    def _look(self) -> Met[None] | Waiting:
        self._require_running()
        self._serial.read()
        if self._serial.panic is not None and time.monotonic() - self._begun > PANICKED:
            self._revive(self._serial.panic)
        says = f"waiting for {self._subject.name} to answer at {self._subject.machine.tag.floating}"
        try:
            guest = _login(self._subject)
            try:
                self._subject.stepped += clock.settle(
                    guest, self._subject.machine.tag, self._progress, self._subject.skew
                )
            finally:
                _close(guest)
        except UnreachableError:
            self._answered = time.monotonic()
        except GuestError as error:  # it answers, and refuses: services start one after another
            if time.monotonic() - self._answered > self._lab.pace.silence(REFUSED):
                raise
            says += f"; {error.what}"
        else:
            if READY in self._serial.phases:
                first_boot.unmark(self._subject.host.conn, self._subject)
            return Met(None)
        written = domains.written_bytes(self._subject.host.conn, self._subject)
        return Waiting(says, (self._serial.size, written))

    def _require_running(self) -> None:
        state = self._subject.state
        if state == "running":
            return
        require_no_crash(self._subject.host.conn, self._lab.name, self._subject, self._progress)
        if state in domains.PAUSED:
            require_writable_disk(self._subject.host, self._subject)
        raise GuestError(
            f"'{self._subject.name}' is {state}, but winlab is waiting for it to answer.",
            cure="Run the same command again.",
            evidence=f"winlab serial {self._subject.name} --log --lab {self._lab.name}",
        )

    def _revive(self, panic: str) -> None:
        """Reset an emulated machine whose kernel panicked, as the first boot does (:mod:`winlab.steps.boot`).

        :raises GuestError: the machine is not emulated, or was reset too often.
        """
        node = self._subject.name
        if self._subject.host.facts.accelerator == "kvm" or self._resets == RESETS:
            raise GuestError(
                f"The kernel of '{node}' panicked.",
                why=panic,
                cure=f"Look at 'winlab serial {node} --log --lab {self._lab.name}'. "
                f"'winlab stop {node} --lab {self._lab.name} --force' and 'winlab start' try again.",
                evidence=f"winlab serial {node} --log --lab {self._lab.name}",
            )
        self._resets += 1
        self._progress.say(f"the emulated kernel of {node} panicked ({panic}): restarting the machine")
        power.reset(self._subject.host.conn, self._subject)
        self._begun = time.monotonic()

    def _stalled(self) -> StalledError:
        node, lab = self._subject.name, self._lab.name
        return StalledError(
            f"'{node}' runs, but has not answered for {self._limit:.0f} s.",
            why="There was nothing new on its serial port, and nothing was written to its disk.",
            cure=f"Look at its screen with 'winlab vnc {node} --lab {lab}'; 'winlab doctor' checks the host. "
            f"If the node hangs, 'winlab stop {node} --lab {lab} --force' cuts its power.",
            evidence=f"winlab serial {node} --log --lab {lab}",
        )
