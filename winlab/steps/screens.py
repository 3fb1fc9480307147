"""A machine's screens while winlab waits for it, as a series of small pictures in the lab's folder.

A screen that showed for a minute, an hour ago, is often the only evidence of why Windows did not come up.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from winlab import files
from winlab.adapters.vm import screen
from winlab.adapters.vm.screen import Picture
from winlab.lab_folder import LabFolder

EVERY = 60.0  # seconds from one picture to the next
MOST = 60  # pictures of a machine
BYTES = 3 << 20  # of all pictures of a machine


def folder(of: LabFolder, node: str) -> Path:
    """The folder of a node's pictures; their names are times (UTC)."""
    return of.path / "screens" / node


def forget(of: LabFolder, node: str) -> None:
    """Remove the pictures of an earlier machine of this name."""
    shutil.rmtree(folder(of, node), ignore_errors=True)


class Series:
    """The pictures of one machine. It keeps the newest ones, as far as there is room, and never fails."""

    def __init__(self, of: LabFolder, node: str) -> None:
        self._folder = folder(of, node)
        self._last: Picture | None = None
        self._taken = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next picture."""
        return time.monotonic() - self._taken >= EVERY

    def add(self, ppm: bytes) -> None:
        """Keep a screen (binary PPM) if a picture is due and differs from the last one."""
        if not self.is_due or (picture := screen.reduced(ppm)) is None:
            return
        self._taken = time.monotonic()
        if self._last is not None and not picture.differs(self._last):
            return
        self._last = picture
        with suppress(OSError):  # a full disk must not end the wait
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.png"
            files.write_atomic(self._folder / name, picture.png(), mode=0o600)
            self._prune()

    def _prune(self) -> None:
        total = 0
        for number, path in enumerate(sorted(self._folder.glob("*.png"), reverse=True)):
            total += path.stat().st_size
            if number >= MOST or total > BYTES:
                path.unlink()
