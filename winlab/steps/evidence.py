"""What winlab keeps of a machine that stopped: its screen, its serial port's log, and logs off its disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from winlab.adapters.vm import domains
from winlab.design.plan.model import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.stopping import Stopped

MISSING = "missing.txt"  # what could not be read, and why


class DiskLog(NamedTuple):
    """A log off a machine's disk: its name as evidence, its content, and the text that may show a cause."""

    name: str
    content: bytes
    causes: str


ReadLogs = Callable[[Path, Progress], list[DiskLog]]  # given a folder for temporary files


def collect(run: Run, node: NodePlan, disk_logs: ReadLogs, progress: Progress) -> tuple[Path, str]:
    """Write the evidence into the lab's folder; returns that folder, and the log text to search for known causes.

    What can't be read is left out and listed in a file.

    :param disk_logs: reads the logs off the machine's disk.
    """
    folder = run.folder.path / "evidence" / node.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    texts: list[str] = []
    missing: list[str] = []

    @contextmanager
    def part(what: str) -> Iterator[None]:
        try:
            yield
        except (WinlabError, OSError) as error:
            missing.append(f"{what}: {error}\n")
            progress.say(f"{what} can't be read: {str(error).splitlines()[0]}")

    progress.say(f"keeping the evidence in {folder}")
    with part("the screen"):
        (folder / "screen.png").write_bytes(domains.screenshot(run.conn, node.domain))
    with part("the serial port's log"):
        serial = run.pool.download(serial_log(run.plan.lab, node.name))
        (folder / "serial.log").write_bytes(serial)
        texts.append(serial.decode(errors="replace"))
    with part("the logs on the disk"), run.folder.staging() as work:
        for log in disk_logs(work, progress):
            (folder / log.name).write_bytes(log.content)
            texts.append(log.causes)
    (folder / MISSING).unlink(missing_ok=True)
    if missing:
        (folder / MISSING).write_text("".join(missing), encoding="utf-8")
    return folder, "\n".join(texts)


def keep(run: Run, node: NodePlan, disk_logs: ReadLogs, error: WinlabError, progress: Progress) -> None:
    """Write the evidence of *error* and add its folder to *error*. If that fails, *error* stays as it is."""
    with suppress(WinlabError, OSError, Stopped):
        folder, _ = collect(run, node, disk_logs, progress)
        error.evidence = "; ".join(filter(None, (str(folder), error.evidence)))
