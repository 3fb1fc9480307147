"""Steps that wait for a node to answer.

A wait ends when the node answers a verified login and says that it is ready. It gives up not after some total time, but
when there is no sign of life for long: nothing new on the serial port, nothing written to the disks.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

from winlab.engine import Step
from winlab.errors import GuestError, StalledError, UnreachableError, WinlabError
from winlab.events import Progress
from winlab.guest import base
from winlab.net import tags
from winlab.plan import NodePlan
from winlab.render.domain import serial_log
from winlab.steps import Context
from winlab.vm import domains

POLL = 2.0
STALL_SECONDS = 900.0  # on hardware; longer where guests are emulated. Windows is silent for minutes
USUAL = {"linux": 40.0, "windows": 1200.0}
PHASE = re.compile(r"winlab: phase=([\w-]+)")
FAILURE = re.compile(r"winlab: error=([^\r\n]+)")
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
        self.limit = STALL_SECONDS * max(1.0, context.scale / 2)
        self.tag = tags.of(context.plan, node)
        self.refusal: GuestError | None = None

    def answers(self) -> bool:
        """Whether the node answers a login and says it is ready.

        :raises GuestError: it answers, and reports that its first boot failed.
        """
        heard: list[bytes] = []
        self.refusal = None
        try:
            guest = base.connect(self.tag, self.context.state, timeout=10)
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
        """Wait, and tell the phase as far as the serial port shows it."""
        sign, since, refused_since = None, time.monotonic(), time.monotonic()
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
                raise GuestError(
                    f"The bootstrap in '{self.node.name}' failed.",
                    why=failure[1],
                    cure="Destroy the lab and create it anew; or mend it in the guest, run winlab\\bootstrap.ps1 from "
                    "its answer CD again, and then the same command.",
                    evidence=f"winlab serial {self.node.name} --log; in the guest C:\\winlab\\bootstrap.log",
                )
            refusal = f"; {self.refusal.what}" if self.refusal else ""
            progress.say(f"waiting for {self.node.name} to answer at {self.node.floating}: {phase}{refusal}")
            # Windows that is not as far as its last phase need not be asked; Linux tells its last phase only once
            if (self.node.os == "linux" or phase == "ready") and self.answers():
                return
            if self.refusal is None:
                refused_since = time.monotonic()
            elif time.monotonic() - refused_since > REFUSED_SECONDS * max(1.0, self.context.scale / 2):
                raise self.refusal
            now = (len(text), domains.written_bytes(self.context.conn, self.node.domain))
            if now != sign:
                sign, since = now, time.monotonic()
            elif time.monotonic() - since > self.limit:
                raise StalledError(
                    f"'{self.node.name}' shows no sign of life since {self.limit / 60:.0f} min, in phase '{phase}'.",
                    why="Nothing new on its serial port, nothing written to its disk.",
                    cure=f"Look at its screen with 'winlab vnc {self.node.name}', then run the same command again.",
                    evidence=f"winlab serial {self.node.name} --log; winlab screenshot {self.node.name} screen.png",
                )
            time.sleep(POLL)

    def _serial(self) -> str:
        log = serial_log(self.context.plan.lab, self.node.name)
        if not self.context.pool.exists(log):
            self.context.pool.refresh()
        return self.context.pool.download(log).decode(errors="replace")


def _close_quietly(close: Callable[[], None]) -> None:
    # the answer is known already; a connection lost at its end changes nothing
    with suppress(WinlabError):
        close()
