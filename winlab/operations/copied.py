"""What a copy has done, and how much of it so far."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from winlab.events import Progress

EACH = 0.5  # seconds between two reports
MIB = 1 << 20


@dataclass(frozen=True)
class Copied:
    """What was copied. ``skipped`` are links, devices and the like in folders, which are not copied."""

    files: int
    size: int
    skipped: tuple[str, ...] = ()


class Meter:
    """Counts a copy's bytes, and reports them.

    :param total: bytes of all files.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self.total = total
        self.done = 0
        self._progress = progress
        self._what = ""
        self._before = 0  # bytes of the files before this one
        self._moved = 0  # bytes that were really transferred
        self._begun = self._told = time.monotonic()

    def begin(self, what: str, offset: int) -> None:
        """The copy of a file begins, or resumes at *offset*."""
        self._what = what
        self.done = self._before + offset
        if offset:
            self._report(f"resumes at {offset / MIB:.1f} MiB")

    def end(self, size: int) -> None:
        """The copy of a file of *size* bytes has ended."""
        self._before += size
        self.done = self._before

    def counted(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The blocks, while they are counted."""
        for block in blocks:
            yield block
            self.done += len(block)
            self._moved += len(block)
            if (now := time.monotonic()) - self._told >= EACH:
                self._told = now
                self._report(f"{self._moved / MIB / (now - self._begun):.1f} MiB/s")

    def say(self, text: str) -> None:
        """Report something else."""
        self._report(text)

    def _report(self, text: str) -> None:
        of = f"{self.done / MIB:.1f} of {self.total / MIB:.1f} MiB"
        self._progress.say(f"{self._what}: {of}, {text}", min(self.done / max(self.total, 1), 1.0))
