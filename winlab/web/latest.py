"""Values that a thread keeps up to date while someone asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Generic, TypeVar

T = TypeVar("T")
FIRST = 15.0  # seconds to wait for the first value
UNUSED = 15.0  # seconds without a question, after which nothing is read any more


class Latest(Generic[T]):
    """The newest of the values that a generator yields, from a thread that ends when no one asks."""

    def __init__(self, values: Callable[[], Generator[T, None, None]]) -> None:
        self._values = values
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._first = threading.Event()
        self._value: T | None = None
        self._error: Exception | None = None
        self._asked = 0.0

    def get(self) -> T | None:
        """The newest value; None: there is none yet.

        :raises Exception: the generator's, once. The next call starts it again.
        """
        with self._lock:
            self._asked = time.monotonic()
            if self._thread is None:
                self._value = None
                self._first.clear()
                self._thread = threading.Thread(target=self._follow, daemon=True)
                self._thread.start()
        self._first.wait(FIRST)
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value

    def _follow(self) -> None:
        try:
            with closing(self._values()) as values:
                for value in values:
                    self._value = value
                    self._first.set()
                    with self._lock:
                        if time.monotonic() - self._asked > UNUSED:
                            self._thread = None
                            return
        except Exception as error:  # the caller of get has it
            self._error = error
        with self._lock:
            self._thread = None
            self._first.set()
