"""Threads that inherit their submitter's context, including the site in use."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(ThreadPoolExecutor):
    """A pool of threads; see :func:`winlab.settings.use`."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As :meth:`concurrent.futures.Executor.submit`, in a copy of the caller's context."""
        context = contextvars.copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))
