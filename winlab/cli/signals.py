"""SIGTERM and SIGHUP end a command as Ctrl-C does: what it holds is released, and the same command resumes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt for these signals, for the length of a with-block. One that is ignored (nohup) stays so.

    By default they would end Python at once: paused machines would stay paused, and temporary files would stay.
    """
    terminals = [number for number in (1, 2) if os.isatty(number)]

    def interrupt(number: int, _frame: FrameType | None) -> None:
        for further in ENDING:  # a closed terminal sends two; the second must not end the clean-up
            signal.signal(further, signal.SIG_IGN)
        if number == signal.SIGHUP and terminals:
            _leave(terminals)
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(terminals: list[int]) -> None:
    """Write to nowhere from now on: the terminal is gone, and writing to it would raise an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)
