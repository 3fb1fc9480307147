"""How work learns that it should stop: the user interrupted, another step failed, or a caller's event is set.

What can stop work gives it an event (:func:`by`); threads of :class:`winlab.threads.Threads` inherit it. Calls that
may block for long, such as a command in a guest, look at it every moment.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from winlab.errors import ExitCode

T = TypeVar("T")
Stop = threading.Event | None  # set from another thread, it stops the work
LOOK = 0.25  # seconds between two looks
CLEAN_UP = 4.0  # seconds for a call that begins after the stop: it cleans up. A command has five in all

_events: ContextVar[tuple[threading.Event, ...]] = ContextVar("winlab_stop", default=())


class Stopped(Exception):
    """Work was asked to stop. It is not a WinlabError: what tries again or does without must not catch it."""

    exit_code = ExitCode.INTERRUPTED


@contextmanager
def by(event: Stop) -> Iterator[None]:
    """Make *event*, if there is one, stop the work inside the with-block, besides what stops it already."""
    token = _events.set((*_events.get(), *([] if event is None else [event])))
    try:
        yield
    finally:
        _events.reset(token)


def asked() -> bool:
    """Whether the current work was asked to stop."""
    return any(event.is_set() for event in _events.get())


def check() -> None:
    """Check whether the current work should continue.

    :raises Stopped: it was asked to stop.
    """
    if asked():
        raise Stopped


def sleep(seconds: float) -> None:
    """Wait between two tries.

    :raises Stopped: the work was asked to stop.
    """
    check()
    Patience().sleep(seconds)


class Patience:
    """How long one blocking call may last: until it is asked to stop; clean-up has :data:`CLEAN_UP` seconds."""

    def __init__(self) -> None:
        self._cleaned = time.monotonic() + CLEAN_UP if asked() else None

    def is_over(self) -> bool:
        """Whether the call should end now."""
        return asked() if self._cleaned is None else time.monotonic() > self._cleaned

    def check(self) -> None:
        """Check whether the call may continue.

        :raises Stopped: it should end now.
        """
        if self.is_over():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        """Wait between two tries.

        :raises Stopped: the call should end now.
        """
        end = time.monotonic() + seconds
        self.check()
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            self.check()


def patiently(call: Callable[[], T], grace: float = 0.0, limit: float = math.inf) -> T:
    """What a call returns that blocks and can't be interrupted. It runs in a thread, which is left alone on a stop.

    :param grace: seconds that the call still has after a stop.
    :param limit: seconds that it may take in all.
    :raises Stopped: the work was asked to stop, and it did not end in time.
    :raises TimeoutError: it took longer than *limit*.
    """
    made: Future[T] = Future()

    def work() -> None:
        try:
            made.set_result(call())
        except BaseException as error:
            made.set_exception(error)

    patience, over, begun = Patience(), 0.0, time.monotonic()
    threading.Thread(target=work, daemon=True).start()
    while not wait([made], LOOK).done:
        if time.monotonic() - begun > limit:
            raise TimeoutError(f"no answer within {limit:.0f} s")
        if patience.is_over():
            over = over or time.monotonic()
            if time.monotonic() - over >= grace:
                raise Stopped
    return made.result()
