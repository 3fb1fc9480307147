"""What measurements share: the command with its events, the labs that they use, and their removal."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import api
from winlab import Lab, all_snapshots, run
from winlab.site import Site

PREFIX = "bench-"  # of the names of all labs that are made here
BASE = f"{PREFIX}base"  # the Ready lab that most measurements use
COPY = f"{PREFIX}copy"  # a clone of it
NAME = "bench"  # the snapshot of it that clones are made from
WINLAB = (sys.executable, "-m", "winlab")
SETTLE = 3.0  # seconds
LATE = 60.0  # seconds in which an API server must answer once the command has ended


@dataclass
class Ran:
    """A command that ended well: its events with their times, in seconds since it began.

    :param answered: when the API server answered with all nodes Ready; None if that was not asked for.
    """

    events: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    seconds: float = 0.0
    answered: float | None = None

    def last(self, reaches: str) -> float:
        """When the last step was done that reaches a kind of state; ValueError if there was none."""
        return max(at for at, one in self.events if one["event"] == "StepDone" and one["reaches"] == reaches)


class Stage:
    """The labs of one run of the benchmarks.

    :param create: the words of ``winlab create`` that say what the Ready lab is.
    :param folder: for large files; on the same disk as the checkout.
    """

    def __init__(self, create: tuple[str, ...], folder: Path, say: Callable[[str], None]) -> None:
        self.create = create
        self.folder = folder
        self.say = say
        folder.mkdir(parents=True, exist_ok=True)

    def winlab(self, *words: str, env: dict[str, str] | None = None, follow: str = "") -> Ran:
        """Run a command of winlab that reports events.

        :param follow: a lab whose API server is asked, from the command's first step on, until its nodes are Ready.
        :raises WinlabError: the command failed.
        """
        ran, over, begun = Ran(), threading.Event(), time.monotonic()
        with ThreadPoolExecutor(1) as asking:
            waiting: list[Future[float | None]] = []

            def note(line: str) -> None:
                if not line.startswith('{"event"'):
                    return  # a line of its result, or of its progress for people
                event = json.loads(line)
                ran.events.append((time.monotonic() - begun, event))
                if follow and not waiting and event["event"] == "RunStarted":
                    waiting.append(asking.submit(api.until_ready, Site().folder(follow).kubeconfig, over))

            try:
                run.stream([*WINLAB, *words, "--events", "/dev/stderr"], note, env=env)
                ran.seconds = time.monotonic() - begun
                for one in waiting:
                    with suppress(TimeoutError):
                        at = one.result(LATE)
                        ran.answered = None if at is None else at - begun
            finally:
                over.set()
        return ran

    def lab(self) -> Lab:
        """The Ready lab, running; it is made if there is none."""
        lab = Lab(BASE)
        if lab.machines():
            lab.resume()
        else:
            self.say("  making the lab that is measured")
            self.winlab("create", "--lab", BASE, *self.create)
        return lab

    def snapshot(self) -> str:
        """The snapshot of the Ready lab. The lab itself is suspended, so that the host is idle."""
        lab = self.lab()
        if not any(one.id.name == NAME and one.record for one in lab.snapshots.list()):
            lab.snapshots.save(NAME)
        self.idle()
        return f"{BASE}@{NAME}"

    def idle(self) -> None:
        """Suspend the Ready lab if there is one: what is measured then has the host for itself."""
        lab = Lab(BASE)
        if lab.machines():
            lab.suspend()
        self.settle()

    def settle(self) -> None:
        """Wait until what was written is on the disk, and the host is quiet."""
        os.sync()
        time.sleep(SETTLE)

    @contextmanager
    def temporary(self, *labs: str) -> Iterator[None]:
        """Destroy labs before and after the block."""
        try:
            for lab in labs:
                Lab(lab).destroy()
            yield
        finally:
            for lab in labs:
                Lab(lab).destroy()

    def sweep(self, *, keep: bool) -> None:
        """Remove all labs and snapshots of the benchmarks.

        :param keep: leave the Ready lab and its snapshot for the next run.
        """
        for lab in Lab.all():
            if lab.name.startswith(PREFIX) and not (keep and lab.name == BASE):
                lab.destroy()
        for row in all_snapshots():
            if row.id.lab.startswith(PREFIX) and not (keep and row.id == (BASE, NAME)):
                Lab(row.id.lab).snapshots.delete(row.id.name)
