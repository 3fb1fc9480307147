"""A lab's journal: the events of whatever changed it, one JSON object a line, for those who watch it or look back.

::

    journal.jsonl      0600  the newest runs
    journal.1.jsonl    0600  the runs before them; a run that begins when the journal is long moves it here

Only the process that holds the lab's lock writes. Progress is thinned out, so that a run that waits for days leaves a
journal of a few megabytes. Readers skip incomplete events: a process that is killed while it writes leaves half a
line.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

from winlab import events
from winlab.events import Event, Listener, Note, RunStarted, StepChecking, StepEvent, StepProgress

LONG = 4 << 20  # bytes: the next run begins a new file
FULL = 8 << 20  # bytes: no more progress is written until then
LONGEST_LINE = 8 << 20  # bytes: a longer line is not an event
OFTEN, SELDOM = 3.0, 60.0  # seconds between two reports of a step's progress: when it begins, and when it takes long


def older(path: Path) -> Path:
    """The file with the runs before those in the journal *path*."""
    return path.with_suffix(f".1{path.suffix}")


class Writer:
    """Writes a journal. It never raises: work continues without one.

    :param kept: makes the folder that the journal is in, and keeps it for the length of a with-block.
    """

    def __init__(self, path: Path, kept: Callable[[], AbstractContextManager[None]]) -> None:
        self._path = path
        self._kept = kept
        self._failed = False
        self._said: dict[tuple[str, str, str], tuple[float, object]] = {}
        self._lock = threading.Lock()

    def record(self, event: Event) -> str:
        """Add an event, unless it reports a step's progress and that was reported just now.

        :returns: why it can't be written, the first time that it can't; otherwise empty.
        """
        with self._lock:
            if not self._is_new(event):
                return ""
            try:
                with self._kept():
                    self._write(event)
            except Exception as error:
                if not self._failed:
                    self._failed = True
                    return f"The journal '{self._path}' can't be written: {str(error).splitlines()[0]}"
        return ""

    def _is_new(self, event: Event) -> bool:
        if not isinstance(event, StepEvent):
            return True
        key = (event.run, event.lab, event.step)
        if not isinstance(event, StepProgress):
            self._said.pop(key, None)
            return True
        when, before = self._said.get(key, (-SELDOM, None))
        pause = min(SELDOM, max(OFTEN, event.seconds / 60))
        now, report = time.monotonic(), (event.text, event.fraction)
        if report == before or now - when < pause:
            return False
        self._said[key] = (now, report)
        return True

    def _write(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            with suppress(FileNotFoundError):
                if self._path.stat().st_size > LONG:
                    self._path.replace(older(self._path))
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size > FULL and isinstance(event, (StepProgress, StepChecking)):
                return
            line = json.dumps(events.record(event)).encode() + b"\n"
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # after half a line, of a winlab that was killed or a disk that was full
            left = memoryview(line)
            while left:
                left = left[os.write(handle, left) :]
        finally:
            os.close(handle)


def journaled(writer: Callable[[Event], str], tell: Listener, lab: str) -> Listener:
    """A listener that records events before it passes them on; if it can't record them, a note says so once."""

    def listen(event: Event) -> None:
        trouble = writer(event)
        tell(event)
        if trouble:
            tell(Note(lab=lab, text=trouble))

    return listen


def read(path: Path) -> Iterator[Event]:
    """The events of a journal, the oldest first; none if there is no journal.

    :raises OSError: it can't be read.
    """
    with ExitStack() as stack:
        for file in _open(path, stack):
            for line in _lines(file):
                if (event := _event(line)) is not None:
                    yield event


def _open(path: Path, stack: ExitStack) -> list[BinaryIO]:
    """The journal's files, opened so that none is missing or there twice if one is moved meanwhile."""
    while True:
        files = [file for file in (_opened(older(path), stack), _opened(path, stack)) if file is not None]
        now = [one for one in (_identity(older(path)), _identity(path)) if one is not None]
        if [_number(os.fstat(file.fileno())) for file in files] == now:
            return files


def _opened(path: Path, stack: ExitStack) -> BinaryIO | None:
    try:
        return stack.enter_context(path.open("rb"))
    except FileNotFoundError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _number(path.stat())
    except FileNotFoundError:
        return None


def _number(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The whole lines from here on, without those that are too long to be events."""
    whole = True
    while line := file.readline(LONGEST_LINE):
        ends = line.endswith(b"\n")
        if ends and whole:
            yield line
        whole = ends


def _event(line: bytes) -> Event | None:
    try:
        return events.parse(json.loads(line))
    except (ValueError, RecursionError):
        return None


class Follower:
    """Reads a journal as it grows, also across its moves; a lab that is destroyed and made again begins a new one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.restarts = 0  # how often the journal was replaced by that of another lab

    def news(self) -> list[Event]:
        """The events since the last call; at first, all there are.

        :raises OSError: the journal can't be read.
        """
        if self._file is None:
            return self._begin()
        made = self._more(self._file)
        own, there = _number(os.fstat(self._file.fileno())), _identity(self._path)
        if there in (None, own):
            return made
        made += self._more(self._file)  # what came before it was moved
        if _identity(older(self._path)) != own:
            self.restarts += 1
            made = []
        self.close()
        return made + self._begin(newest_only=True)

    def close(self) -> None:
        """Close the journal."""
        if self._file is not None:
            self._file.close()
        self._file, self._rest = None, b""

    def _begin(self, *, newest_only: bool = False) -> list[Event]:
        with ExitStack() as stack:
            files = _open(self._path, stack)
            if not files:
                return []
            *before, self._file = files[-1:] if newest_only else files
            made = [event for file in before for line in _lines(file) if (event := _event(line)) is not None]
            made += self._more(self._file)
            stack.pop_all()
        for file in files[:-1]:
            file.close()
        return made

    def _more(self, file: BinaryIO) -> list[Event]:
        made: list[Event] = []
        while chunk := file.read(1 << 20):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            made += [event for line in lines if len(line) < LONGEST_LINE and (event := _event(line)) is not None]
            if len(self._rest) > LONGEST_LINE:
                self._rest = b"\0"  # no event begins with it: the rest of the line goes, too
        return made
