"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it holds is released, and the same command resumes.

Python handles a signal only between two of its own instructions: a question to a library that is never answered would
hold back all three for ever. So a thread watches for signals that are not heard.
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
LATE = 2.0  # seconds by which the watching thread may learn of a signal after the main thread: a busy host


@contextmanager
def as_interrupts(unheard: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise KeyboardInterrupt for these signals, for the length of a with-block. One that is ignored (nohup) stays so.

    By default they would end Python at once: paused machines would stay paused, and temporary files would stay.

    :param unheard: called in a thread of its own when a signal, Ctrl-C included, was not heard for :data:`PATIENCE`.
    """
    terminals = [number for number in (1, 2) if os.isatty(number)]
    watch = _Watch(unheard)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        watch.heard = time.monotonic()
        if number != signal.SIGINT:
            for further in ENDING:  # a closed terminal sends two; the second must not end the clean-up
                signal.signal(further, signal.SIG_IGN)
        if number == signal.SIGHUP and terminals:
            _leave(terminals)
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
    """A thread that is told of each signal by the interpreter's own C handler, at once."""

    def __init__(self, unheard: Callable[[], None] | None) -> None:
        self.heard = 0.0
        self._unheard = unheard
        self._over = False

    @contextmanager
    def on(self) -> Iterator[None]:
        if self._unheard is None:
            yield
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)  # https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        threading.Thread(target=self._look, args=(reading, self._unheard), daemon=True).start()
        try:
            yield
        finally:
            self._over = True
            signal.set_wakeup_fd(before)
            os.close(writing)

    def _look(self, reading: int, unheard: Callable[[], None]) -> None:
        with os.fdopen(reading, "rb", buffering=0) as signals:
            while number := signals.read(1):
                arrived = time.monotonic()
                if number[0] not in (signal.SIGINT, *ENDING):
                    continue
                time.sleep(PATIENCE)
                if not self._over and self.heard < arrived - LATE:
                    unheard()


def _leave(terminals: list[int]) -> None:
    """Write to nowhere from now on: the terminal is gone, and writing to it would raise an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
