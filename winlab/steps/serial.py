"""What a node's serial port has said so far, read piece by piece; and how long its phases take."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from winlab.adapters.vm.volumes import StoragePool
from winlab.engine.durations import Durations

FIRST_PHASE = "firmware and boot loader"
# whole words and lines: what follows them is there, too
TOLD = re.compile(r"winlab: phase=([\w-]+)(?=[^\w-])|winlab: error=([^\r\n]+)(?=[\r\n])")
# OVMF's own words when it starts a CD; Microsoft's boot image then asks for a key for about five seconds
STARTS_CD = re.compile(r'BdsDxe: starting Boot\w+ "UEFI [^"]*DVD-ROM')
# A Linux kernel's very last words; whatever starts after it writes more
PANIC = re.compile(r"---\[ end Kernel panic - not syncing: ([^\r\n]+) \]---\s*\Z")
OOPS = re.compile(r"\] ((?:Oops|BUG): [^\r\n]+)")
TAIL = 64 << 10  # bytes; an oops and the panic after it take some ten thousand
LINE = 4096  # bytes of a line that may have been read in part
AGAIN = 30.0  # seconds without anything new until all is read again: virtlogd begins a new file when one is full


class SerialLog:
    """The log of one serial port, a volume of the pool."""

    def __init__(self, pool: StoragePool, volume: str) -> None:
        self._pool = pool
        self._volume = volume
        self._tail = b""
        self._rest = b""
        self._heard = time.monotonic()
        self.size = 0  # bytes that were read
        self.phase = ""  # the last one; empty as long as none was told
        self.failure = ""  # told since that phase
        self.starts_cd = False  # whether the firmware has started a CD so far

    @property
    def panic(self) -> str | None:
        """Why the kernel has given up, if those are the last words."""
        found = PANIC.search(self._text)
        return found[1] if found else None

    @property
    def oops(self) -> str:
        """The last thing that went wrong in the kernel; empty if nothing did."""
        found = OOPS.findall(self._text)
        return str(found[-1]) if found else ""

    @property
    def _text(self) -> str:
        return self._tail.decode(errors="replace")

    def read(self) -> None:
        """Read what is new."""
        if not self._pool.exists(self._volume):
            self._pool.refresh()
        piece = self._pool.download(self._volume, self.size)
        if not piece and time.monotonic() - self._heard > AGAIN:
            piece = self._begun_anew()
        if piece:
            self._heard = time.monotonic()
            self._take(piece)

    def _begun_anew(self) -> bytes:
        """All of the log, if it is another one than was read: it is shorter."""
        self._heard = time.monotonic()
        whole = self._pool.download(self._volume)
        if len(whole) >= self.size:
            return whole[self.size :]
        self.size, self._rest = 0, b""
        return whole

    def _take(self, piece: bytes) -> None:
        self.size += len(piece)
        self._tail = (self._tail + piece)[-TAIL:]
        text = (self._rest + piece).decode(errors="replace")
        for told in TOLD.finditer(text):
            if told[1]:
                self.phase, self.failure = told[1], ""
            else:
                self.failure = self.failure or told[2]
        self.starts_cd = self.starts_cd or STARTS_CD.search(text) is not None
        self._rest = (self._rest + piece).rpartition(b"\n")[2][-LINE:]


class PhaseClock:
    """How long a phase usually takes, where that is known; learns how long each takes.

    :param of: the class of the node.
    """

    def __init__(self, known: Durations, of: str, now: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._of = of
        self._now = now
        self._phase = ""
        self._began = 0.0
        self._usual = 0.0

    def usual(self, phase: str) -> float:
        """How many seconds the phase that goes on now usually takes; 0 if that is not known."""
        if phase != self._phase:
            now = self._now()
            if self._began:  # not that in which winlab came to it
                self._known.learn(f"phase {self._phase}", self._of, now - self._began)
            self._began = now if self._phase else 0.0
            self._phase, self._usual = phase, self._known.usual(f"phase {phase}", self._of) or 0.0
        return self._usual
