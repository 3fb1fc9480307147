"""Steps that wait for a node to answer.

A wait ends when the node answers a verified login and reports that it is ready. There is no total time limit. It gives
up after a long time without a sign of life: nothing new on the serial port or screen, nothing written to the disks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

from winlab import settings
from winlab.adapters.guests.connect import connect
from winlab.adapters.vm import domains, screen
from winlab.design.plan import tags
from winlab.design.plan.model import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine import wait
from winlab.engine.durations import node_class
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError
from winlab.events import Progress
from winlab.steps import evidence, images, known_failures
from winlab.steps.serial import FIRST_PHASE, PhaseClock, SerialLog
from winlab.steps.states import BOOTED, STARTED

POLL = 2.0
LOOK = 30.0  # seconds between two looks at the screen
USUAL = {"linux": 40.0, "windows": 1200.0}
RESETS = 2  # of an emulated machine
PRESSES, PAUSE = 6, 0.25  # seconds
REFUSED_SECONDS = 240.0  # a guest may refuse the login for a while: its server runs before its accounts are made
READY = {
    # cloud-init's own marker, and Windows' from bootstrap.ps1
    "linux": ["test -e /var/lib/cloud/instance/boot-finished && cat /run/cloud-init/result.json"],
    "windows": ["cmd.exe /c type C:\\winlab\\ready.txt"],
}


def step(run: Run, node: NodePlan, usual: float | None) -> Step:
    """The step that waits for one node."""
    login = Login(run, node)
    return Step(
        BOOTED(run.lab, node.name),
        lambda progress: _Wait(run, node, login, progress).run(),
        login.answers,
        after=[STARTED(run.lab, node.name)],
        usual=usual or run.pace.usual(USUAL[node.os]),
    )


class Login:
    """Tries to log in to a node that may not be ready."""

    def __init__(self, run: Run, node: NodePlan) -> None:
        self._node = node
        self._folder = run.folder
        self._tag = tags.of(run.plan, node)
        self.refusal: GuestError | None = None  # of the last try

    def answers(self) -> bool:
        """Whether the node answers a login and says it is ready.

        :raises GuestError: it answers, and reports that its first boot failed.
        """
        heard: list[bytes] = []
        self.refusal = None
        try:
            guest = connect(self._tag, self._folder, timeout=10)
        except UnreachableError:
            return False
        except GuestError as error:
            self.refusal = error
            return False
        try:
            code = guest.execute(READY[self._node.os], heard.append)
        except GuestError:
            return False
        finally:
            _close_quietly(guest.close)
        text = b"".join(heard).decode(errors="replace")
        if code == 0 and self._node.os == "linux":
            self._check_cloud_init(text)
        return code == 0

    def _check_cloud_init(self, text: str) -> None:
        errors = json.loads(text or "{}").get("v1", {}).get("errors", [])
        if errors:
            raise GuestError(
                f"cloud-init on '{self._node.name}' reports errors.",
                why="; ".join(str(error) for error in errors),
                evidence=f"winlab exec {self._node.name} -- sudo cat /var/log/cloud-init.log",
            )


class _Wait:
    """One wait for a node, with what has been seen of it so far."""

    def __init__(self, run: Run, node: NodePlan, login: Login, progress: Progress) -> None:
        self._run = run
        self._node = node
        self._login = login
        login.refusal = None  # a refusal from before this wait says nothing about how long it lasts
        self._progress = progress
        self._limit = run.pace.silence(settings.stall_seconds())
        self._serial = SerialLog(run.pool, serial_log(run.lab, node.name))
        self._clock = PhaseClock(run.pace.known, node_class(node))
        self._needs_key = images.needs_key(node, run.stock)
        self._refused_since = time.monotonic()
        self._resets = 0
        self._looked, self._screen = 0.0, b""

    def run(self) -> None:
        """Wait, and report the phase as far as the serial port shows it; keep the evidence of a failure."""
        try:
            wait.until(self._look, self._progress, lambda _: self._stalled(), stall=self._limit, poll=POLL)
        except GuestError as error:
            evidence.keep(self._run, self._node, error, self._progress)
            raise

    @property
    def _phase(self) -> str:
        return self._serial.phase or FIRST_PHASE

    def _look(self) -> Met[None] | Waiting:
        self._require_running()
        self._serial.read()
        self._require_no_failure()
        if self._serial.panic is not None:
            self._revive(self._serial.panic)
        # Windows need not be asked before its last phase; Linux reports its last phase only once
        if (self._node.os == "linux" or self._phase == "ready") and self._login.answers():
            return Met(None)
        self._require_no_lasting_refusal()
        if self._needs_key and not self._serial.phase and self._serial.starts_cd:
            self._press()
        written = domains.written_bytes(self._run.conn, self._node.domain)
        return Waiting(self._says(), (self._serial.size, written), alive=self._screen_moved())

    def _says(self) -> str:
        usual = self._clock.usual(self._phase) if self._node.os == "windows" else 0.0
        about = f", a phase of usually {usual:.0f} s" if usual else ""
        refusal = f"; {self._login.refusal.what}" if self._login.refusal else ""
        return f"waiting for {self._node.name} to answer at {self._node.floating}: {self._phase}{about}{refusal}"

    def _require_running(self) -> None:
        state = domains.state(self._run.conn, self._node.domain)
        if state != "running":
            raise GuestError(
                f"'{self._node.name}' is {state}, while winlab waits for it.",
                why="Its disk may be full." if state == "paused" else "",
                cure=f"Run the same command again; 'winlab serial {self._node.name} --log' shows its last words.",
                evidence=f"/var/log/libvirt/qemu/{self._node.domain}.log",
            )

    def _require_no_failure(self) -> None:
        failure = self._serial.failure
        if not failure:
            return
        trap = known_failures.recognise(failure) if self._node.os == "windows" else None
        raise GuestError(
            f"The bootstrap in '{self._node.name}' failed.",
            why=failure,
            cure=(f"{trap.cure} " if trap else "")
            + "Destroy the lab and create it anew; or mend it in the guest, run winlab\\bootstrap.ps1 from its "
            "answer CD again, and then the same command.",
            evidence=f"winlab serial {self._node.name} --log; in the guest C:\\winlab\\bootstrap.log",
        )

    def _require_no_lasting_refusal(self) -> None:
        if self._login.refusal is None:
            self._refused_since = time.monotonic()
        elif time.monotonic() - self._refused_since > self._run.pace.silence(REFUSED_SECONDS):
            raise self._login.refusal

    def _screen_moved(self) -> bool:
        """Whether the screen changed since the last look. Looking takes time, so not every call looks."""
        if time.monotonic() - self._looked < LOOK:
            return False
        before, self._screen = self._screen, domains.look(self._run.conn, self._node.domain)
        self._looked = time.monotonic()
        return screen.differs(before, self._screen)

    def _stalled(self) -> StalledError:
        folder, logs = evidence.collect(self._run, self._node, self._progress)
        lab = self._run.lab
        trap = known_failures.recognise(logs) if self._node.os == "windows" else None
        why = "Nothing new on its serial port or screen, nothing written to its disk."
        if self._phase == "ready" and self._node.os == "windows":
            why = "It says that it is ready, but nothing answers there: the lab's network, or a firewall in the guest."
        cure = f"Look at its screen with 'winlab vnc {self._node.name} --lab {lab}', then run the same command again."
        if trap is not None:
            why = trap.why
            cure = f"{trap.cure} Then run 'winlab destroy --lab {lab}' and the same command again."
        return StalledError(
            f"'{self._node.name}' shows no sign of life since {self._limit:.0f} s, in phase '{self._phase}'.",
            why=why,
            cure=cure,
            evidence=str(folder),
        )

    def _revive(self, panic: str) -> None:
        """Reset an emulated machine whose kernel has given up.

        A kernel with several of QEMU's emulated CPUs panics now and then: one CPU hits a breakpoint that another set
        while patching code, and has already removed (seen: QEMU 7.2, Linux 6.12, "Oops: int3").

        :raises GuestError: it is not emulated, or was reset too often.
        """
        node = self._node.name
        if self._run.plan.host.accelerator == "kvm" or self._resets == RESETS:
            oops = self._serial.oops
            raise GuestError(
                f"The kernel of '{node}' has given up.",
                why=panic + (f"; before it: {oops}" if oops else ""),
                cure=f"See 'winlab serial {node} --log'; destroy the lab and create it anew, or take another image.",
                evidence=f"winlab serial {node} --log --lab {self._run.lab}",
            )
        self._resets += 1
        self._progress.say(f"the emulated kernel of {node} has given up ({panic}): starting it again")
        domains.reset(self._run.conn, self._node.domain)
        time.sleep(POLL * 5)  # until the firmware says something

    def _press(self) -> None:
        for _ in range(PRESSES):
            domains.press_enter(self._run.conn, self._node.domain)
            time.sleep(PAUSE)


def _close_quietly(close: Callable[[], None]) -> None:
    # the answer is already known; losing the connection now changes nothing
    with suppress(WinlabError):
        close()
