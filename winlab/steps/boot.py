"""Steps that wait for a node to answer.

A wait ends when the node answers a verified login and reports that it is ready. There is no total time limit. A wait
gives up after a long time without a sign of life (nothing new on the serial port or screen, nothing written to disk).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from winlab import settings, stopping
from winlab.adapters.guests import base
from winlab.adapters.guests.connect import change, connect
from winlab.adapters.vm import display, domains, first_boot, power, screen
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError
from winlab.events import NodeTransport, Progress, report
from winlab.printable import printable
from winlab.steps import evidence, systems
from winlab.steps.crashed import require_no_crash
from winlab.steps.cut_off import READY
from winlab.steps.interface import SystemSteps
from winlab.steps.machines import start_over
from winlab.steps.paused import require_writable_disk
from winlab.steps.screens import Series
from winlab.steps.serial import FIRST_PHASE, PhaseClock, SerialLog
from winlab.steps.states import BOOTED, STARTED
from winlab.steps.unheard import Unheard

POLL = 2.0
ANSWER = 60.0  # seconds in which a node that accepts a login must say whether it is ready
DUMP = 60.0  # seconds for a failed guest's report
MOST_READY = 1 << 20  # bytes of a first boot's result
LOOK = 30.0  # seconds between two looks at the screen
ASK = 60.0  # seconds between two logins before the last phase: a ready guest may be unable to write to its serial port
RESETS = 2  # of an emulated machine
SAID = 3  # starts in one phase that are reported: Windows Setup restarts once in some of its phases
LOOPS = 6  # starts in one phase that show that it will never leave this phase
PRESSES, PAUSE = 6, 0.25  # seconds
DEAF_SECONDS = 180.0  # in which a ready machine answers; after that it never does
REFUSED_SECONDS = 240.0  # a guest may refuse the login for a while: its server starts before its accounts exist
# The same for a system that locks the account, which opens again within this time; and the seconds after each refusal
# until the next login: fewer than ten logins in that time, and then so few that none of the earlier ones counts
LOCKED_SECONDS = 900.0
PAUSES = (0.0, 0.0, 30.0, 60.0, 120.0, 240.0, 240.0, 660.0)
LOCKED = "account=locked"  # beacon.ps1


def step(run: Run, node: NodePlan, usual: float | None) -> Step:
    """The step that waits for one node.

    :param usual: how long the boot usually takes, in seconds; None: as long as its system usually does.
    """
    own = systems.of(run, node)
    login = Login(run, node, own)
    return Step(
        BOOTED(run.lab, node.name),
        lambda progress: _Wait(run, node, own, login, progress).run(),
        lambda: not first_boot.is_marked(run.on(node).conn, node) and login.answers(),
        after=[STARTED(run.lab, node.name)],
        usual=usual or run.pace.usual(node.system.usual_boot),
    )


class Login:
    """Tries to log in to a node that may not be ready."""

    def __init__(self, run: Run, node: NodePlan, own: SystemSteps) -> None:
        self._own = own
        self._folder = run.folder
        self._limit = run.pace.silence(ANSWER)
        self._tag = tags.of(run.plan, node)
        self.refusal: GuestError | None = None  # of the last attempt

    def change(self) -> NodeTransport | None:
        """The transport by which the node answers now, if it is not the same as before."""
        return change(self._tag)

    def answers(self) -> bool:
        """Whether the node answers a login and says it is ready.

        :raises GuestError: it answers and reports that its first boot failed.
        """
        heard = base.Kept(MOST_READY)
        self.refusal = None
        try:
            guest = connect(self._tag, self._folder, timeout=10)
        except UnreachableError:
            return False
        except GuestError as error:
            self.refusal = error
            return False
        try:
            code = guest.execute([self._own.ready_command], heard, waiting=base.at_most(self._limit))
        except GuestError:
            return False
        finally:
            _close_quietly(guest.close)
        if code != 0:
            return False
        self._own.check_first_boot(str(heard))
        return True


class _Wait:
    """One wait for a node, with what has been seen of it so far."""

    def __init__(self, run: Run, node: NodePlan, own: SystemSteps, login: Login, progress: Progress) -> None:
        self._run = run
        self._node = node
        self._own = own
        self._login = login
        login.refusal = None  # a refusal before this wait does not count for how long refusals last
        self._progress = progress
        self._limit = run.pace.silence(settings.stall_seconds())
        self._host = run.on(node)
        self._serial = SerialLog(self._host.pool, serial_log(run.lab, node.name))
        self._clock = PhaseClock(run.pace.known, node.time_class)
        self._needs_key = own.needs_key()
        self._refused_since = time.monotonic()
        self._refusals = 0  # so far
        self._is_refused = False  # at the last login
        self._resets = 0
        self._told = 0  # of its warnings
        self._looked, self._screen = 0.0, b""
        self._series = Series(run.folder, node.name)
        self._unheard = Unheard(run, node, progress)
        self._asked = self._begun = time.monotonic()
        self._serial.read()
        # it was up before this command, so its phases may belong to several boots
        started = run.outputs.get(STARTED(run.lab, node.name), bool)
        self._is_broken = not started and own.was_cut_off(self._serial.phases)
        self._serial.forget_starts()  # those of a machine that winlab waited for before

    def run(self) -> None:
        """Wait and report the phase that the serial port shows; keep the evidence of a failure."""
        try:
            wait.until(self._look, self._progress, lambda _: self._stalled(), stall=self._limit, poll=POLL)
        except GuestError as error:
            evidence.keep(self._run, self._node, self._own.disk_logs, error, self._progress)
            raise
        first_boot.unmark(self._host.conn, self._node)

    @property
    def _phase(self) -> str:
        return self._serial.phase or FIRST_PHASE

    @property
    def _is_marked(self) -> bool:
        return first_boot.is_marked(self._host.conn, self._node)

    @property
    def _is_in_last_phase(self) -> bool:
        return self._phase == self._own.last_phase

    def _look(self) -> Met[None] | Waiting:
        self._require_running()
        self._serial.read()
        self._tell_warnings()
        self._require_no_failure()
        if self._serial.starts >= LOOPS:
            raise self._given_up(
                f"'{self._node.name}' starts again and again: {self._serial.starts} times in phase '{self._phase}'.",
                "Something has the machine restart before it gets any further: a crash, or Setup itself.",
            )
        if self._serial.panic is not None:
            self._revive(self._serial.panic)
        answers = self._answers()
        if (event := self._login.change()) is not None:
            report(self._progress, event)
        if answers:
            return Met(None)
        self._leave_no_broken_start()
        if self._is_in_last_phase and self._login.refusal is None:
            self._unheard.look(self._serial.beacon)
        self._require_no_lasting_refusal()
        if self._needs_key and not self._serial.phase and self._serial.starts_cd:
            self._press()
        written = domains.written_bytes(self._host.conn, self._node)
        is_alive = self._screen_moved() or self._login.refusal is not None
        return Waiting(self._says(), (self._serial.size, written), alive=is_alive)

    def _answers(self) -> bool:
        is_early = not (self._own.last_phase is None or self._is_in_last_phase)
        if time.monotonic() - self._asked < max(ASK if is_early else 0.0, self._pause):
            return False
        answers = self._login.answers()
        self._is_refused = self._login.refusal is not None
        self._refusals += self._is_refused
        if is_early:
            self._login.refusal = None  # this early it means nothing
        self._asked = time.monotonic()
        return answers

    @property
    def _pause(self) -> float:
        """Seconds from the last login to the next, after a refusal: enough of them would lock the account."""
        if not self._is_refused or not self._node.system.locks_account:
            return 0.0
        return PAUSES[min(self._refusals, len(PAUSES)) - 1]

    def _says(self) -> str:
        usual = 0.0 if self._own.last_phase is None else self._clock.usual(self._phase)
        about = f", which usually takes {usual:.0f} s" if usual else ""
        refusal = f"; {self._login.refusal.what}" if self._login.refusal else ""
        if (left := self._asked + self._pause - time.monotonic()) > POLL:
            refusal += f" It is asked again in {left:.0f} s, because refusals may lock the account."
        refusal += f"; it is up: {printable(self._serial.beacon)}" if self._serial.beacon else ""
        if self._serial.starts >= SAID:
            about += f"; it has started {self._serial.starts} times in this phase"
        return f"waiting for {self._node.name} to answer at {self._node.floating}: {self._phase}{about}{refusal}"

    def _require_running(self) -> None:
        state = domains.state(self._host.conn, self._node)
        if state != "running":
            require_no_crash(self._host.conn, self._run.lab, self._node, self._progress)
            require_writable_disk(self._host, self._node)
            raise GuestError(
                f"'{self._node.name}' is {state}, but winlab is waiting for it to boot.",
                cure="Run the same command again: it starts or resumes the node. "
                f"'winlab serial {self._node.name} --log' shows its last output.",
                evidence=f"/var/log/libvirt/qemu/{domains.name_of(self._host.conn, self._node)}.log",
            )

    def _hear_out(self) -> None:
        """Wait for what a guest reports after its failure, so that the evidence contains it."""
        end = time.monotonic() + DUMP
        while True:
            stopping.sleep(POLL)
            self._serial.read()
            if not self._serial.dumping or time.monotonic() > end:
                return

    def _tell_warnings(self) -> None:
        """Report what the first boot could not do, though the node works without it."""
        for text in self._serial.warnings[self._told :]:
            self._progress.say(f"{self._node.name} warns: {printable(text)}")
        self._told = len(self._serial.warnings)

    def _require_no_failure(self) -> None:
        failure = self._serial.failure
        if not failure:
            return
        self._hear_out()
        raise GuestError(
            f"The bootstrap in '{self._node.name}' failed.",
            why=failure,
            cure=self._own.bootstrap_cure,
            evidence=f"winlab serial {self._node.name} --log; in the guest {self._own.bootstrap_log}",
        )

    def _require_no_lasting_refusal(self) -> None:
        limit = LOCKED_SECONDS if self._node.system.locks_account else REFUSED_SECONDS
        if self._login.refusal is None:
            self._refused_since = time.monotonic()
        elif time.monotonic() - self._refused_since > self._run.pace.silence(limit):
            if LOCKED in self._serial.beacon:
                raise GuestError(
                    f"'{self._node.name}' has locked the Administrator's account.", why=self._login.refusal.what
                )
            raise self._login.refusal

    def _screen_moved(self) -> bool:
        """Whether the screen changed since the last look. A look takes time, so most calls do not look."""
        if time.monotonic() - self._looked < LOOK:
            return False
        ppm = display.look(self._host.conn, self._node)
        self._series.add(ppm)
        before, self._screen = self._screen, screen.signature(ppm)
        self._looked = time.monotonic()
        return screen.differs(before, self._screen)

    def _stalled(self) -> StalledError:
        why = "Nothing new on its serial port or screen, nothing written to its disk."
        if self._is_in_last_phase:
            why = "It reports that it is ready, but nothing answers: check the lab's network and the guest's firewall."
        what = f"'{self._node.name}' has shown no sign of life for {self._limit:.0f} s, in phase '{self._phase}'."
        return self._given_up(what, why)

    def _given_up(self, what: str, why: str) -> StalledError:
        """The error, with the cause and cure that the evidence shows."""
        lab, node = self._run.lab, self._node.name
        cure = f"Look at its screen: 'winlab vnc {node} --lab {lab}'. Then run the same command again."
        if READY not in self._serial.phases and self._is_marked:
            cure += (
                f" If its power failed before, run 'winlab stop {node} --lab {lab} --force' first: it gets a new disk."
            )
        error = StalledError(what, why=why, cure=cure)
        then = f"Then run 'winlab destroy --lab {lab}' and the same command again."
        evidence.keep(self._run, self._node, self._own.disk_logs, error, self._progress, then)
        return error

    def _revive(self, panic: str) -> None:
        """Reset an emulated machine whose kernel panicked.

        A kernel with several of QEMU's emulated CPUs panics now and then. One CPU hits a breakpoint that another CPU
        set while patching code and has already removed (seen: QEMU 7.2, Linux 6.12, "Oops: int3").

        :raises GuestError: the machine is not emulated, or was reset too often.
        """
        node = self._node.name
        if self._host.facts.accelerator == "kvm" or self._resets == RESETS:
            oops = self._serial.oops
            raise GuestError(
                f"The kernel of '{node}' panicked.",
                why=panic + (f"; before it: {oops}" if oops else ""),
                cure=f"Look at 'winlab serial {node} --log'; create the lab again, or with another image.",
                evidence=f"winlab serial {node} --log --lab {self._run.lab}",
            )
        self._resets += 1
        self._progress.say(f"the emulated kernel of {node} panicked ({panic}): restarting the machine")
        # before cloud-init, nothing has been written yet
        if self._serial.phases and READY not in self._serial.phases and self._is_marked:
            self._start_over()
        else:
            power.reset(self._host.conn, self._node)
        stopping.sleep(POLL * 5)  # until the firmware writes something

    def _start_over(self) -> None:
        start_over(self._run, self._node, self._progress)
        self._serial = SerialLog(self._host.pool, serial_log(self._run.lab, self._node.name))
        self._is_broken, self._told = False, 0

    def _leave_no_broken_start(self) -> None:
        """Start a machine over that reports that it is ready but does not answer and never has.

        Its first boot was cut off, and something else has started it again: libvirt with the host, or ``winlab start``.
        """
        if not self._is_broken or time.monotonic() - self._begun < self._run.pace.silence(DEAF_SECONDS):
            return
        self._is_broken = False
        if self._login.refusal is None and self._is_marked:
            self._start_over()

    def _press(self) -> None:
        for _ in range(PRESSES):
            display.press_enter(self._host.conn, self._node)
            stopping.sleep(PAUSE)


def _close_quietly(close: Callable[[], None]) -> None:
    # the answer is known by now, so a lost connection does no harm
    with suppress(WinlabError):
        close()
