"""What winlab keeps of a machine that stopped: its screen, its serial port's log, and logs from its disk. Adds the
known cause that these show to the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from winlab.adapters.guests import agent
from winlab.adapters.vm import display
from winlab.design.cause.reading import decoded, recognise
from winlab.design.contract import on_both
from winlab.design.plan import tags
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.stopping import Stopped

MISSING = "missing.txt"  # what could not be read, and why
LINES = 500  # of each log in a guest
NAME = re.compile(r"[\w-][\w.-]{0,199}", re.ASCII)


class DiskLog(NamedTuple):
    """A log from a machine's disk: its name as evidence, and its content."""

    name: str
    content: bytes


ReadLogs = Callable[[Path, Progress], list[DiskLog]]  # given a folder for temporary files


def collect(run: Run, node: NodePlan, disk_logs: ReadLogs, progress: Progress) -> tuple[Path, list[str]]:
    """Write the evidence into the lab's folder; returns that folder, and the logs' texts.

    What can't be read is left out and listed in a file.

    :param disk_logs: reads the logs from the machine's disk.
    """
    folder = _folder(run, node)
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
        (folder / "screen.png").write_bytes(display.screenshot(run.on(node).conn, node))
    with part("the serial port's log"):
        serial = run.on(node).pool.download(serial_log(run.plan.lab, node.name))
        (folder / "serial.log").write_bytes(serial)
        texts.append(decoded(serial))
    with part("what its guest agent tells"):
        by_agent(run, node, progress)
    with part("the logs on the disk"), run.folder.staging() as work:
        for log in disk_logs(work, progress):
            (folder / log.name).write_bytes(log.content)
            texts.append(decoded(log.content))
    (folder / MISSING).unlink(missing_ok=True)
    if missing:
        (folder / MISSING).write_text("".join(missing), encoding="utf-8")
    return folder, texts


def by_agent(run: Run, node: NodePlan, progress: Progress) -> None:
    """Write what the guest agent of a running machine reports into the same folder; nothing if it does not answer.

    :raises WinlabError: libvirt does not answer.
    :raises OSError: it can't be written.
    """
    call = on_both.Logs(lines=LINES, everything=True)
    for name, text in agent.texts(run.on(node).conn, node, tags.of(run.plan, node), run.folder, call).items():
        if NAME.fullmatch(name):  # the guest chose it
            path = _folder(run, node) / f"agent-{name}.log"
            path.write_text(text, encoding="utf-8")
            progress.say(f"{path} is what its guest agent tells")


def _folder(run: Run, node: NodePlan) -> Path:
    folder = run.folder.path / "evidence" / node.name
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def keep(
    run: Run, node: NodePlan, disk_logs: ReadLogs, error: WinlabError, progress: Progress, then: str | None = None
) -> None:
    """Write the evidence of *error*, add its folder to *error*, and name the known cause that the evidence shows.

    If no evidence can be kept, *error* keeps only its own text.

    :param then: what to do after the cure of a known cause, in place of *error*'s own cure.
    """
    texts: list[str] = []
    with suppress(WinlabError, OSError, Stopped):
        folder, texts = collect(run, node, disk_logs, progress)
        error.evidence = "; ".join(filter(None, (str(folder), error.evidence)))
    name_cause(error, texts, then)


def name_cause(error: WinlabError, texts: Sequence[str] = (), then: str | None = None) -> None:
    """Add the known cause of *error*, if its own text shows one, or otherwise the logs do; only once.

    :param then: as in :func:`keep`.
    """
    cause = recognise(f"{error.what}\n{error.why}") or recognise(*texts)
    if cause is None or cause.cure in error.cure:
        return
    error.why = "\n".join(filter(None, (error.why, f"{cause.what} {cause.why}")))
    error.cure = " ".join(filter(None, (cause.cure, error.cure if then is None else then)))
