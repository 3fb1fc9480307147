"""Threads that inherit their submitter's context: the site in use, and what stops the work."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

from winlab import stopping

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """A pool of threads; see :func:`winlab.settings.use`. An interrupt of its with-block stops the work in them."""

    def __init__(self, max_workers: int) -> None:
        super().__init__(max_workers)
        self._stop = threading.Event()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As :meth:`concurrent.futures.Executor.submit`, in a copy of the caller's context."""
        context = contextvars.copy_context()

        def work() -> T:
            with stopping.by(self._stop):
                return fn(*args, **kwargs)

        return super().submit(lambda: context.run(work))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self._stop.set()
            self.shutdown(cancel_futures=True)
        super().__exit__(kind, error, trace)
