"""How long a command in a guest may be silent: the silence is reported every minute, and winlab finally gives up."""

from __future__ import annotations

import time
from collections.abc import Callable

from winlab.adapters.guests.base import Sink
from winlab.errors import SilentError

TELL = 60.0  # seconds of silence from one report of it to the next


class Silence:
    """Watches one command from its start.

    :param what: the command, for messages: ``'join' in 'node-1'``.
    :param limit: seconds for which it may be silent.
    :param tell: called every :data:`TELL` seconds while it is silent.
    :param evidence: where to look.
    """

    def __init__(self, what: str, limit: float, tell: Callable[[str], None], evidence: str = "") -> None:
        self._what = what
        self._limit = limit
        self._tell = tell
        self._evidence = evidence
        self._begun = self._heard = self._told = time.monotonic()

    def breaks(self, sink: Sink) -> Sink:
        """The sink, for output that breaks the silence."""

        def hear(piece: bytes) -> None:
            if piece:
                self._heard = self._told = time.monotonic()
            sink(piece)

        return hear

    def look(self) -> None:
        """Look at the clock, while the command runs.

        :raises SilentError: it was silent for too long.
        """
        now = time.monotonic()
        ran, quiet = now - self._begun, now - self._heard
        if quiet > self._limit:
            raise SilentError(
                f"{self._what} has been silent for {quiet:.0f} s, and winlab no longer waits for it.",
                why=f"It has run for {ran:.0f} s, and its last words were {quiet:.0f} s ago."
                if self._heard > self._begun
                else "It has printed nothing since it began.",
                cure="Run the same command again: it continues there. 'winlab logs' shows more.",
                evidence=self._evidence,
            )
        if now - self._told >= TELL:
            self._told = now
            self._tell(f"{self._what} still runs after {ran:.0f} s; nothing heard for {quiet:.0f} s")
