"""Noticing that nothing moves in a guest any more: by lack of progress, not by a total time."""

from __future__ import annotations

import time


class Life:
    """Looks at signs of life, such as what a guest has written. They may stay the same for *limit* seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._sign: object = None
        self._since = time.monotonic()

    def has_stopped(self, sign: object, *, moved: bool = False) -> bool:
        """Whether *sign* is the same as ever for longer than the limit.

        :param moved: something else shows that the guest lives.
        """
        if moved or sign != self._sign:
            self._sign, self._since = sign, time.monotonic()
        return time.monotonic() - self._since > self.limit
