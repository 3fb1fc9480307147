"""Finds known causes in logs. Guests and strangers write logs: reading takes time in proportion to their size.

A clue's word is looked up in the whole text at once; only lines that have it are looked at closely. A line belongs to
one cause: the first in the catalog that it shows.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from winlab.design.cause.catalog import CAUSES
from winlab.design.cause.model import Cause, Clue, Effect
from winlab.printable import printable

SHOWN = 3  # lines of evidence that an explanation repeats
WIDTH = 300  # characters of each
LEAD = 80  # bytes that are shown of what a long line has before the word
BEFORE, AFTER = 512, 1 << 10  # bytes of a line that are looked at, around the word
MOST = 1000  # lines with one word that are looked at: the last ones
BACK = 200  # lines that an entry of Setup's logs may have
PHASE = re.compile(rb"winlab: phase=([\w-]{1,64})")
OWN = b"winlab: "  # begins what winlab's scripts write to the serial port
ENTRY = re.compile(rb"[ \t]*\d{4}-\d\d-\d\d \d\d:\d\d:\d\d, *(\w+)")  # in Setup's logs: a time and a level
LEVELS = (b"Error", b"Fatal")
TELLING = ('"StepFailed"', '"NodeCrashed"')  # events of a journal that may show a cause: others say what is awaited
MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16


@dataclass(frozen=True)
class Log:
    """A text, and its name for people."""

    name: str
    text: str


@dataclass(frozen=True)
class Line:
    """A line of evidence: the log's name, the line's number (from 1), and what it says, printable."""

    log: str
    number: int
    text: str


@dataclass(frozen=True)
class Explanation:
    """A known cause that logs show: the first lines that show it, and how many there are."""

    cause: Cause
    evidence: tuple[Line, ...]
    lines: int


def decoded(content: bytes) -> str:
    """A log's text: UTF-16, also without a byte order mark; otherwise UTF-8."""
    if content[:2] in MARKS:
        return content.decode("utf-16", "replace")
    even, odd = content[:4096:2], content[1:4096:2]
    if len(odd) > 1 and odd.count(0) > len(odd) * 3 // 4 and even.count(0) < len(even) // 4:
        return content.decode("utf-16-le", "replace")
    return content.decode("utf-8-sig", "replace")


def log_of(name: str, content: bytes) -> Log:
    """A log from its file's name and content. Of a journal (.jsonl) only the failures of the last run are kept."""
    text = decoded(content)
    if not name.endswith(".jsonl"):
        return Log(name, text)
    lines = text.split("\n")
    last = max((number for number, line in enumerate(lines) if '"RunStarted"' in line), default=0)
    kept = (
        line if number >= last and any(word in line for word in TELLING) else "" for number, line in enumerate(lines)
    )
    return Log(name, "\n".join(kept))


def explain(logs: Iterable[Log], causes: Sequence[Cause] = CAUSES) -> list[Explanation]:
    """The known causes that logs show, what ends things first; what only says where they stopped, if nothing else."""
    evidence: dict[str, list[Line]] = {}
    counts: dict[str, int] = {}
    for log in logs:
        text = _Text(log)
        for name, places in text.shows(causes).items():
            kept = evidence.setdefault(name, [])
            kept += [text.line(place) for place in places[: SHOWN - len(kept)]]
            counts[name] = counts.get(name, 0) + len(places)
    shown = [
        Explanation(cause, tuple(evidence[cause.name]), counts[cause.name])
        for effect in Effect
        for cause in causes
        if cause.effect is effect and cause.name in evidence
    ]
    return [one for one in shown if one.cause.effect is not Effect.SILENT] or shown


def recognise(*texts: str) -> Cause | None:
    """The first known cause by which something ended, as texts show it; None if they show none."""
    ending = [cause for cause in CAUSES if cause.effect is Effect.ENDS]
    shown = explain((Log("", text) for text in texts), ending)
    return shown[0].cause if shown else None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


class _Text:
    """One log while it is read. A *place* is where a line begins, in bytes."""

    def __init__(self, log: Log) -> None:
        self._name = log.name
        self._raw = log.text.encode("utf-8", "replace")
        self._low = self._raw.lower()  # of bytes: ASCII alone changes, and no place moves
        self._phases = [(match.start(), match[1].decode()) for match in PHASE.finditer(self._raw)]
        self._seen: dict[int, int] = {}  # where in a line the word is, by the line's place
        self._levels: dict[int, bool] = {}  # whether a line is of a harmless entry, by its place

    def shows(self, causes: Sequence[Cause]) -> dict[str, list[int]]:
        """The lines that show a cause, by the cause's name. What ended before a later phase did not end."""
        overcome = self._phases[-1][0] if self._phases else 0
        taken: set[int] = set()
        made: dict[str, list[int]] = {}
        for cause in causes:
            begin = overcome if cause.effect is Effect.ENDS else 0
            places = {place for clue in cause.clues for place in self._places(clue) if place >= begin}
            if own := sorted(places - taken):
                made[cause.name] = own
                taken.update(own)
        return made

    def line(self, place: int) -> Line:
        """The line at a place, as evidence."""
        begin, end = place, self._end(place)
        if end - begin > WIDTH:
            begin = max(begin, min(self._seen[place] - LEAD, end - WIDTH))
        text = self._raw[begin : min(end, begin + 4 * WIDTH)].decode(errors="replace").strip()
        if begin > place:
            text = f"...{text}"
        if len(text) > WIDTH:
            text = f"{text[:WIDTH]}..."
        return Line(self._name, self._raw.count(b"\n", 0, place) + 1, printable(text))

    def _places(self, clue: Clue) -> list[int]:
        places = self._lines(clue)
        if clue.until is not None and (ends := self._lines(clue.until)):
            places = [place for place in places if place > ends[-1]]
        return places if len(places) >= clue.times else []

    def _lines(self, clue: Clue) -> list[int]:
        """The lines that are as the clue says, of the last ones with its word."""
        word, at = clue.word.encode(), len(self._low)
        places: list[int] = []
        for _ in range(MOST):
            at = self._low.rfind(word, 0, at)
            if at < 0:
                break
            place = self._low.rfind(b"\n", 0, at) + 1
            if self._is_shown(clue, place, at):
                self._seen[place] = at
                places.append(place)
            at = place
        return places[::-1]

    def _is_shown(self, clue: Clue, place: int, at: int) -> bool:
        if clue.pattern:
            around = self._raw[max(place, at - BEFORE) : min(self._end(at), at + AFTER)]
            if _compiled(clue.pattern).search(around.decode(errors="replace")) is None:
                return False
        if clue.phase and self._phase(place) != clue.phase:
            return False
        return clue.harmless or not self._is_harmless(place)

    def _end(self, at: int) -> int:
        end = self._raw.find(b"\n", at)
        return len(self._raw) if end < 0 else end

    def _phase(self, place: int) -> str:
        """The serial port's last report of a phase before a line."""
        index = bisect.bisect_left(self._phases, (place, ""))
        return self._phases[index - 1][1] if index else ""

    def _is_harmless(self, place: int) -> bool:
        """Whether a line belongs to an entry of Setup's logs that is not an error: those use the same words.

        A line without a time belongs to the entry before it.
        """
        if place not in self._levels:
            self._levels[place] = self._look_up(place)
        return self._levels[place]

    def _look_up(self, place: int) -> bool:
        for _ in range(BACK):
            if entry := ENTRY.match(self._raw, place):
                return entry[1] not in LEVELS
            if place == 0 or OWN in self._raw[place : place + LEAD]:
                return False
            place = self._raw.rfind(b"\n", 0, place - 1) + 1
        return False
