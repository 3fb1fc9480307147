"""Steps that wait for a node to answer.

A wait ends when the node answers a verified login and says that it is ready. It gives up not after some total time, but
when there is no sign of life for long: nothing new on the serial port, nothing written to the disks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

from winlab import settings
from winlab.adapters.guests.connect import connect
from winlab.adapters.vm import domains, screen
from winlab.design.plan import tags
from winlab.design.plan.model import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine import durations
from winlab.engine.engine import Step
from winlab.engine.stall import Life
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError
from winlab.events import Progress
from winlab.steps import Context, evidence, images, known_failures

POLL = 2.0
LOOK = 30.0  # seconds between two looks at the screen
USUAL = {"linux": 40.0, "windows": 1200.0}
PHASE = re.compile(r"winlab: phase=([\w-]+)")
FAILURE = re.compile(r"winlab: error=([^\r\n]+)")
# OVMF's own words when it starts a CD; Microsoft's boot image then asks for a key for about five seconds
STARTS_CD = re.compile(r'BdsDxe: starting Boot\w+ "UEFI [^"]*DVD-ROM')
# A Linux kernel's very last words; whatever starts after it writes more
PANIC = re.compile(r"---\[ end Kernel panic - not syncing: ([^\r\n]+) \]---\s*\Z")
OOPS = re.compile(r"\] ((?:Oops|BUG): [^\r\n]+)")
RESETS = 2  # of an emulated machine
PRESSES, PAUSE = 6, 0.25  # seconds
REFUSED_SECONDS = 240.0  # a guest may refuse the login for a while: its server runs before its accounts are made
READY = {
    # cloud-init's own marker, and Windows' from bootstrap.ps1
    "linux": ["test -e /var/lib/cloud/instance/boot-finished && cat /run/cloud-init/result.json"],
    "windows": ["cmd.exe /c type C:\\winlab\\ready.txt"],
}


def step(context: Context, node: NodePlan, usual: float | None) -> Step:
    """The step that waits for one node."""
    wait = _Wait(context, node)
    return Step(
        f"boot {node.name}",
        wait.run,
        wait.answers,
        needs=(f"start {node.name}",),
        usual=usual or USUAL[node.os] * context.scale,
    )


class _Wait:
    def __init__(self, context: Context, node: NodePlan) -> None:
        self.context = context
        self.node = node
        self.limit = settings.stall_seconds() * max(1.0, context.scale / 2)
        self.tag = tags.of(context.plan, node)
        self.refusal: GuestError | None = None
        self.needs_key = False
        self.resets = 0
        self.phase, self.phase_began, self.phase_usual = "", 0.0, 0.0
        self.looked, self.seen = 0.0, b""

    def answers(self) -> bool:
        """Whether the node answers a login and says it is ready.

        :raises GuestError: it answers, and reports that its first boot failed.
        """
        heard: list[bytes] = []
        self.refusal = None
        try:
            guest = connect(self.tag, self.context.state, timeout=10)
        except UnreachableError:
            return False
        except GuestError as error:
            self.refusal = error
            return False
        try:
            code = guest.execute(READY[self.node.os], heard.append)
        except GuestError:
            return False
        finally:
            _close_quietly(guest.close)
        text = b"".join(heard).decode(errors="replace")
        if code == 0 and self.node.os == "linux":
            self._check_cloud_init(text)
        return code == 0

    def _check_cloud_init(self, text: str) -> None:
        import json

        errors = json.loads(text or "{}").get("v1", {}).get("errors", [])
        if errors:
            raise GuestError(
                f"cloud-init on '{self.node.name}' reports errors.",
                why="; ".join(str(error) for error in errors),
                evidence=f"winlab exec {self.node.name} -- sudo cat /var/log/cloud-init.log",
            )

    def run(self, progress: Progress) -> None:
        """Wait, and tell the phase as far as the serial port shows it; keep the evidence of a failure."""
        try:
            self._wait(progress)
        except GuestError as error:
            evidence.keep(self.context, self.node, error, progress)
            raise

    def _wait(self, progress: Progress) -> None:
        self.needs_key = images.needs_key(self.node, self.context.stock)
        life, refused_since = Life(self.limit), time.monotonic()
        while True:
            state = domains.state(self.context.conn, self.node.domain)
            if state != "running":
                raise GuestError(
                    f"'{self.node.name}' is {state}, while winlab waits for it.",
                    why="Its disk may be full." if state == "paused" else "",
                    cure=f"Run the same command again; 'winlab serial {self.node.name} --log' shows its last words.",
                    evidence=f"/var/log/libvirt/qemu/{self.node.domain}.log",
                )
            text = self._serial()
            phases = [match[1] for match in PHASE.finditer(text)]
            phase = phases[-1] if phases else "firmware and boot loader"
            if failure := FAILURE.search(text, text.rfind("winlab: phase=")):
                trap = known_failures.recognise(failure[1]) if self.node.os == "windows" else None
                raise GuestError(
                    f"The bootstrap in '{self.node.name}' failed.",
                    why=failure[1],
                    cure=(f"{trap.cure} " if trap else "")
                    + "Destroy the lab and create it anew; or mend it in the guest, run winlab\\bootstrap.ps1 from its "
                    "answer CD again, and then the same command.",
                    evidence=f"winlab serial {self.node.name} --log; in the guest C:\\winlab\\bootstrap.log",
                )
            if panic := PANIC.search(text):
                self._revive(panic, progress)
            refusal = f"; {self.refusal.what}" if self.refusal else ""
            about = self._clock(phase) if self.node.os == "windows" else ""
            progress.say(f"waiting for {self.node.name} to answer at {self.node.floating}: {phase}{about}{refusal}")
            # Windows that is not as far as its last phase need not be asked; Linux tells its last phase only once
            if (self.node.os == "linux" or phase == "ready") and self.answers():
                return
            if self.refusal is None:
                refused_since = time.monotonic()
            elif time.monotonic() - refused_since > REFUSED_SECONDS * max(1.0, self.context.scale / 2):
                raise self.refusal
            if self.needs_key and not phases and STARTS_CD.search(text):
                self._press()
            now = (len(text), domains.written_bytes(self.context.conn, self.node.domain))
            if life.has_stopped(now, moved=self._screen_moved()):
                raise self._stalled(phase, progress)
            time.sleep(POLL)

    def _clock(self, phase: str) -> str:
        """How long a phase usually takes, where that is known; and learn how long the one before it took."""
        if phase != self.phase:
            now, known, kind = time.monotonic(), self.context.known, durations.kind(self.node)
            if self.phase_began:  # not that in which winlab came to it
                known.learn(f"phase {self.phase} {kind}", now - self.phase_began)
            self.phase_began = now if self.phase else 0.0
            self.phase, self.phase_usual = phase, known.usual(f"phase {phase} {kind}") or 0.0
        return f", a phase of usually {self.phase_usual:.0f} s" if self.phase_usual else ""

    def _screen_moved(self) -> bool:
        """Whether something happened on the screen since the last look; a look costs time, so not at every call."""
        if time.monotonic() - self.looked < LOOK:
            return False
        before, self.seen = self.seen, domains.look(self.context.conn, self.node.domain)
        self.looked = time.monotonic()
        return screen.differs(before, self.seen)

    def _stalled(self, phase: str, progress: Progress) -> StalledError:
        folder, logs = evidence.collect(self.context, self.node, progress)
        lab = self.context.plan.lab
        trap = known_failures.recognise(logs) if self.node.os == "windows" else None
        why = "Nothing new on its serial port or screen, nothing written to its disk."
        if phase == "ready" and self.node.os == "windows":
            why = "It says that it is ready, but nothing answers there: the lab's network, or a firewall in the guest."
        cure = f"Look at its screen with 'winlab vnc {self.node.name} --lab {lab}', then run the same command again."
        if trap is not None:
            why = trap.why
            cure = f"{trap.cure} Then run 'winlab destroy --lab {lab}' and the same command again."
        return StalledError(
            f"'{self.node.name}' shows no sign of life since {self.limit:.0f} s, in phase '{phase}'.",
            why=why,
            cure=cure,
            evidence=str(folder),
        )

    def _revive(self, panic: re.Match[str], progress: Progress) -> None:
        """Reset an emulated machine whose kernel has given up.

        QEMU's emulated CPUs let a kernel with several of them down now and then: one runs the breakpoint that another
        had put there while it patched the code, and has taken away again (seen: QEMU 7.2, Linux 6.12, "Oops: int3").

        :raises GuestError: it is not emulated, or was reset often enough.
        """
        node = self.node.name
        if self.context.plan.host.accelerator == "kvm" or self.resets == RESETS:
            oopses = OOPS.findall(panic.string)
            raise GuestError(
                f"The kernel of '{node}' has given up.",
                why=panic[1] + (f"; before it: {oopses[-1]}" if oopses else ""),
                cure=f"See 'winlab serial {node} --log'; destroy the lab and create it anew, or take another image.",
                evidence=f"winlab serial {node} --log --lab {self.context.plan.lab}",
            )
        self.resets += 1
        progress.say(f"the emulated kernel of {node} has given up ({panic[1]}): starting it again")
        domains.reset(self.context.conn, self.node.domain)
        time.sleep(POLL * 5)  # until the firmware says something

    def _press(self) -> None:
        for _ in range(PRESSES):
            domains.press_enter(self.context.conn, self.node.domain)
            time.sleep(PAUSE)

    def _serial(self) -> str:
        log = serial_log(self.context.plan.lab, self.node.name)
        if not self.context.pool.exists(log):
            self.context.pool.refresh()
        return self.context.pool.download(log).decode(errors="replace")


def _close_quietly(close: Callable[[], None]) -> None:
    # the answer is known already; a connection lost at its end changes nothing
    with suppress(WinlabError):
        close()
