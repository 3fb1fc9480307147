"""A wait for a lock, as its user sees it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from winlab.events import Progress, Quiet


class Lines(Quiet):
    """The lines of a progress."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.said = threading.Event()

    def say(self, text: str, fraction: float | None = None) -> None:
        self.lines.append(text)
        self.said.set()


def waits(locked: Callable[[Progress], AbstractContextManager[None]]) -> str:
    """What the second of two threads says first that want a lock; it gets the lock when the first one is done."""
    lines, done = Lines(), threading.Event()

    def other() -> None:
        with locked(lines):
            done.set()

    with locked(Quiet()):
        thread = threading.Thread(target=other)
        thread.start()
        assert lines.said.wait(5)
        assert not done.is_set()
    thread.join(5)
    assert done.is_set()
    return lines.lines[0]
