"""One log of a node: its last lines, and what is added to it."""

from __future__ import annotations

import re
from contextlib import closing

from winlab import stopping
from winlab.adapters.guests import connect
from winlab.adapters.guests.base import Sink
from winlab.adapters.guests.file_system import FileSystem
from winlab.design.cause.places import LOGS
from winlab.errors import NotFoundError, UsageError
from winlab.operations import look, reach
from winlab.operations.logs import MOST_LINES
from winlab.site import Site

UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9@._:-]{0,99}")
POLL = 1.0  # seconds between two looks at a file
TAIL = 1 << 20  # bytes of a file in which its last lines are looked for
SINCE = re.compile(r"([0-9]{1,6})([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> int:
    """``10m`` → 600.

    :raises UsageError: it is something else.
    """
    if (found := SINCE.fullmatch(text)) is None:
        raise UsageError(f"'{text}' is not a time.", cure="Give '30s', '10m', '2h' or '1d'.")
    return int(found[1]) * SECONDS[found[2]]


def log(lab: str, node: str, site: Site, unit: str, sink: Sink, *, lines: int, since: int | None, follow: bool) -> None:
    """Pass on the last lines of a log, and with *follow* what is added to it, until the work is asked to stop.

    :param unit: a unit of systemd on Linux; on Windows a name in :data:`LOGS`, or the path of a file.
    :param since: only lines of the last so many seconds, on Linux.
    :raises NotFoundError: there is no such lab, node or log.
    :raises UsageError: the node can't be asked this.
    :raises GuestError: the node does not run, can't be reached, or refuses.
    :raises OSError: what *sink* raises.
    """
    if not 1 <= lines <= MOST_LINES:
        raise UsageError(f"--lines {lines} is not between 1 and {MOST_LINES}.")
    machine = reach.machine(lab, node, site)
    look.require_running(machine)
    if machine.tag.system.login == "ssh":
        if not UNIT.fullmatch(unit):
            raise UsageError(f"'{unit}' is not a unit of systemd.")
        words = ["sudo", "journalctl", "--no-pager", "--output=short-iso", f"--unit={unit}"]
        words += [f"--since=-{since}s"] if since is not None else [f"--lines={lines}"]
        words += ["--follow"] if follow else []
        reach.execute(lab, node, site, words, sink, sink)
        return
    if since is not None:
        raise UsageError(
            f"The logs of '{node}' can't be searched by time.",
            why="Windows' logs are files, and each has its own form of times.",
            cure="Use --lines.",
        )
    path = LOGS.get(unit, unit)
    if not re.match(r"[A-Za-z]:[/\\]", path):
        raise UsageError(
            f"'{node}' has no log '{unit}'.",
            cure=f"Choose one of: {', '.join(LOGS)}. Or name a file: 'C:/folder/x.log'.",
        )
    with closing(connect.files(machine.tag, site.folder(lab))) as files:
        _file(files, files.absolute(path), sink, lines, follow=follow)


def _file(files: FileSystem, path: str, sink: Sink, lines: int, *, follow: bool) -> None:
    size = _size(files, path)
    start = max(size - TAIL, 0)
    text = b"".join(files.read(path, start, size - start)) if size else b""
    sink(b"".join(text.splitlines(keepends=True)[-lines:]))
    at = start + len(text)
    while follow:
        stopping.sleep(POLL)
        size = _size(files, path)
        if size < at:
            at = 0  # it was begun again
        if size > at:
            for block in files.read(path, at, size - at):
                at += len(block)
                sink(block)


def _size(files: FileSystem, path: str) -> int:
    entry = files.look(path)
    if entry is None or entry.kind != "file":
        raise NotFoundError(f"There is no file '{files.shown(path)}' on '{files.name}'.")
    return entry.size
