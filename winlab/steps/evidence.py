"""What is kept of a machine that came to a stop: its screen, its serial port, and Windows Setup's logs off its disk."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from winlab.engine import Stopped
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.media import offline
from winlab.plan import NodePlan
from winlab.render.domain import serial_log
from winlab.steps import Context
from winlab.vm import domains

LOGS = (
    "Windows/Panther/setuperr.log",
    "Windows/Panther/setupact.log",
    "Windows/Panther/UnattendGC/setuperr.log",
    "Windows/Panther/UnattendGC/setupact.log",
    "Windows/System32/Sysprep/Panther/setuperr.log",
    "Windows/System32/Sysprep/Panther/setupact.log",
    "winlab/bootstrap.log",
)


def collect(context: Context, node: NodePlan, progress: Progress) -> tuple[Path, str]:
    """Write the evidence into the lab's folder; that folder, and the logs' texts for whoever looks for a known cause.

    What can't be had is left out.
    """
    folder = context.state.folder / "evidence" / node.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    texts: list[str] = []
    progress.say(f"keeping the evidence in {folder}")
    with suppress(WinlabError):
        (folder / "screen.png").write_bytes(domains.screenshot(context.conn, node.domain))
    serial = context.pool.download(serial_log(context.plan.lab, node.name))
    (folder / "serial.log").write_bytes(serial)
    texts.append(serial.decode(errors="replace"))
    if node.os == "windows":
        with suppress(WinlabError), tempfile.TemporaryDirectory(prefix="winlab-", dir=folder) as work:
            disk = Path(work) / "disk.qcow2"
            progress.say("reading Windows Setup's logs off the disk")
            with domains.paused(context.conn, node.domain):
                context.pool.download_to(node.volume("disk").name, disk, lambda _: None)
            for name, content in offline.read(disk, LOGS, Path(work)).items():
                (folder / name.removeprefix("Windows/").replace("/", "-")).write_bytes(content)
                texts.append(text(content))
    return folder, "\n".join(texts)


def keep(context: Context, node: NodePlan, error: WinlabError, progress: Progress) -> None:
    """Write the evidence of *error*, which then names the folder, too. Whatever goes wrong, the error stays."""
    with suppress(WinlabError, OSError, Stopped):
        folder, _ = collect(context, node, progress)
        error.evidence = "; ".join(filter(None, (str(folder), error.evidence)))


def text(content: bytes) -> str:
    """A log's text: UTF-16 with a mark, or UTF-8."""
    how = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    return content.decode(how, "replace")
