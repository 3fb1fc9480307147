"""SIGTERM and SIGHUP end a command as Ctrl-C does: it releases what it holds, and the same command resumes.

Python handles a signal only between two of its own instructions: a call to a library that never returns would hold
back all three forever. The same is true of a step that waits in a library, because a command waits for its threads.
A thread watches for both.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)
PATIENCE = 4.0  # seconds until a signal counts as not heard
WHOLE = 5.0  # seconds that a command has to end once it heard a signal; every clean-up takes less


@contextmanager
def as_interrupts(late: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise KeyboardInterrupt for these signals within a with-block. A signal that is ignored (nohup) stays ignored.

    By default they would end Python at once: paused machines would stay paused, and temporary files would stay.

    :param late: called in a thread of its own when a signal, Ctrl-C included, was not heard for :data:`PATIENCE`, or
        when the block did not end within :data:`WHOLE`. It ends the process.
    """
    terminals = [number for number in (1, 2) if os.isatty(number)]
    watch = _Watch(late)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and terminals:
            _leave(terminals)
        if watch.heard:
            return  # a closed terminal sends two, users press Ctrl-C again: that must not end the clean-up
        watch.heard = time.monotonic()
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDING)}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)
    try:
        with watch.on():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watch:
    """A thread that the interpreter's own C handler notifies of each signal at once."""

    def __init__(self, late: Callable[[], None] | None) -> None:
        self.heard = 0.0  # when the main thread heard the first signal
        self._late = late
        self._over = threading.Event()

    @contextmanager
    def on(self) -> Iterator[None]:
        if self._late is None:
            yield
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)  # https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        there = threading.enumerate()
        threading.Thread(target=self._look, args=(reading, self._late), daemon=True).start()
        try:
            yield
        finally:
            if self.heard:
                _await_others(than=there)
            self._over.set()
            signal.set_wakeup_fd(before)
            os.close(writing)

    def _look(self, reading: int, late: Callable[[], None]) -> None:
        with os.fdopen(reading, "rb", buffering=0) as signals:
            while number := signals.read(1):
                arrived = time.monotonic()
                if number[0] not in (signal.SIGINT, *ENDING):
                    continue
                if self._over.wait(PATIENCE):
                    return
                if not self.heard or not self._over.wait(arrived + WHOLE - time.monotonic()):
                    late()


def _await_others(than: list[threading.Thread]) -> None:
    """Wait for the threads that no one waited for: Python would do so when it ends, when nothing watches any more.

    A pool does not know a thread during whose start the main thread was interrupted.
    """
    for thread in threading.enumerate():
        if not thread.daemon and thread not in than:
            thread.join()


def _leave(terminals: list[int]) -> None:
    """Discard all further output: the terminal no longer exists, and writing to it would raise an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
