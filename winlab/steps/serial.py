"""A node's output on the serial port, read piece by piece; and how long its phases take."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable

from winlab.adapters.vm.volumes import StoragePool
from winlab.engine.durations import Durations

FIRST_PHASE = "firmware and boot loader"
# complete words and lines only: their end must be present, too
REPORT = re.compile(r"winlab: phase=([\w-]+)(?=[^\w-])|winlab: (error|warning)=([^\r\n]+)(?=[\r\n])")
DUMP = re.compile(r"winlab: (BEGIN|END) dump(?=[\r\n])")
# what a running Windows reports every half minute for a quarter of an hour: the state of its services (beacon.ps1)
BEACON = re.compile(r"winlab: beacon \d+ ([^\r\n]+)(?=[\r\n])")
# OVMF writes this when it starts a CD; Microsoft's boot image then asks for a key for about five seconds
STARTS_CD = re.compile(r'BdsDxe: starting Boot\w+ "UEFI [^"]*DVD-ROM')
# and this whenever it starts anything. It tries each of its options once after a start of the machine
STARTS = re.compile(r"BdsDxe: starting (Boot[0-9A-Fa-f]{4})[^\r\n]*\r?(?=\n)")
# The last line that a Linux kernel writes; whatever starts after it writes more
PANIC = re.compile(r"---\[ end Kernel panic - not syncing: ([^\r\n]+) \]---\s*\Z")
OOPS = re.compile(r"\] ((?:Oops|BUG): [^\r\n]+)")
TAIL = 64 << 10  # bytes; an oops and the panic after it take about ten thousand
LINE = 4096  # bytes to keep of an incomplete line, and of a failure
WARNINGS = 20  # to keep: a guest may report any number
PHASE = 64  # characters of a phase's name
PHASES = 100  # to keep: a guest may report any number
AGAIN = 30.0  # seconds without new output until the log is read again: virtlogd starts a new file when one is full


class SerialLog:
    """The log of one serial port, a volume of the pool."""

    def __init__(self, pool: StoragePool, volume: str) -> None:
        self._pool = pool
        self._volume = volume
        self._tail = b""
        self._rest = b""
        self._heard = time.monotonic()
        self.size = 0  # bytes that were read
        self.phase = ""  # the last one reported; empty before the first
        self.phases: list[str] = []  # the first ones that were reported
        self.failure = ""  # reported since that phase
        self.dumping = False  # whether a failed guest is writing what helps to find the cause
        self.beacon = ""  # the last line of a Windows that is up
        self.warnings: list[str] = []  # reported so far
        self.starts_cd = False  # whether the firmware has started a CD so far
        self._starts: Counter[str] = Counter()  # of each of the firmware's options, in this phase
        self._began_in = 0  # starts of the machine before this phase's report that belong to it: 0 or 1

    @property
    def starts(self) -> int:
        """How often the machine has started in this phase; UEFI firmware says so."""
        return self._began_in + max(self._starts.values(), default=0)

    def forget_starts(self) -> None:
        """Count only later starts and the one that is in progress."""
        self._began_in = min(1, self.starts)
        self._starts.clear()

    @property
    def panic(self) -> str | None:
        """Why the kernel panicked, if that is the end of the log; otherwise None."""
        match = PANIC.search(self._text)
        return match[1] if match else None

    @property
    def oops(self) -> str:
        """The last oops or bug that the kernel reported; empty if there is none."""
        reports = OOPS.findall(self._text)
        return str(reports[-1]) if reports else ""

    @property
    def _text(self) -> str:
        return self._tail.decode(errors="replace")

    def read(self) -> None:
        """Read what is new in the log."""
        if not self._pool.exists(self._volume):
            self._pool.refresh()
        piece = self._pool.download(self._volume, self.size)
        if not piece and time.monotonic() - self._heard > AGAIN:
            piece = self._restarted()
        if piece:
            self._heard = time.monotonic()
            self._take(piece)

    def _restarted(self) -> bytes:
        """The new log if it is shorter than the old one: then a new file was started."""
        self._heard = time.monotonic()
        if not self.size or self._pool.download(self._volume, self.size - 1, 1):
            return b""
        self.size, self._rest = 0, b""
        return self._pool.download(self._volume)

    def _take(self, piece: bytes) -> None:
        self.size += len(piece)
        self._tail = (self._tail + piece)[-TAIL:]
        text = (self._rest + piece).decode(errors="replace")
        for report in sorted((*REPORT.finditer(text), *STARTS.finditer(text)), key=re.Match.start):
            if report.re is STARTS:
                self._starts[report[1]] += 1
            elif report[1]:
                self._enter(report[1][:PHASE])
            elif report[2] == "error":
                self.failure = self.failure or report[3][:LINE]
            elif len(self.warnings) < WARNINGS:
                self.warnings.append(report[3][:LINE])
        for mark in DUMP.findall(text):
            self.dumping = mark == "BEGIN"
        for beacon in BEACON.finditer(text):
            self.beacon = beacon[1][:LINE]
        self.starts_cd = self.starts_cd or STARTS_CD.search(text) is not None
        self._rest = (self._rest + piece).rpartition(b"\n")[2][-LINE:]

    def _enter(self, phase: str) -> None:
        if phase != self.phase:
            self._starts.clear()
            self._began_in = 1
        self.phase, self.failure = phase, ""
        if len(self.phases) < PHASES:
            self.phases.append(phase)


class PhaseClock:
    """How long a phase usually takes, if that is known; records how long each takes.

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
        """How many seconds the current phase usually takes; 0 if that is not known."""
        if phase != self._phase:
            now = self._now()
            if self._began:  # the first phase is not recorded: winlab did not see its beginning
                self._known.learn(f"phase {self._phase}", self._of, now - self._began)
            self._began = now if self._phase else 0.0
            self._phase, self._usual = phase, self._known.usual(f"phase {phase}", self._of) or 0.0
        return self._usual
