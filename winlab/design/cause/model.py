"""What a known cause is, and how it shows in a log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """What a cause does. Only the first kind is named in a step's failure."""

    ENDS = "ends"  # Windows, its Setup, sysprep or one of winlab's scripts can't continue
    HURTS = "hurts"  # it continues, but something does not work
    SILENT = "silent"  # it says only where something stopped: counts where nothing else explains


@dataclass(frozen=True)
class Clue:
    """A line of a log that shows a cause.

    :param word: what the line contains; in lower case, found whatever case the line has. Reading looks for this first,
        so that a log of megabytes takes little time.
    :param pattern: a regular expression that the line must match, too, in any case; empty: the word is enough.
    :param times: how many such lines there must be.
    :param until: a later line of this kind takes it back: it was overcome.
    :param phase: only while the serial port's last report was this phase; empty: in any.
    :param harmless: also in entries of Setup's logs that are neither errors nor fatal.
    """

    word: str
    pattern: str = ""
    times: int = 1
    until: Clue | None = None
    phase: str = ""
    harmless: bool = False


@dataclass(frozen=True)
class Cause:
    """A known cause.

    :param name: its name for programs: never changes.
    :param clues: each of them is enough.
    :param what: what happened, a sentence.
    :param why: what is behind it.
    :param cure: what to do.
    :param source: where this is known from.
    """

    name: str
    effect: Effect
    clues: tuple[Clue, ...]
    what: str
    why: str
    cure: str
    source: str


# What a serial log says once Windows PE, and the pass specialize, are over
LATER = Clue("winlab: phase=", r"phase=(?!windowsPE)")
LOGGED_ON = Clue("winlab: phase=", r"phase=(?!windowsPE|specialize)")
