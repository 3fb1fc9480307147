"""Recordings of terminals in asciicast's format, version 2 (docs.asciinema.org/manual/asciicast/v2)."""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import subprocess  # noqa: TID251 - runs what users type, in a terminal
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

COLUMNS, ROWS = 100, 28
PROMPT = "\x1b[1;32m$\x1b[0m "
CLEAR = "\x1b[H\x1b[2J"
LETTER = 0.04  # seconds between two typed letters
PAUSE = 2.0  # seconds to read what a command printed
LONGEST = 1.0  # seconds without output; what takes longer is shortened to that
COMMAND = 8.0  # seconds that a command's output may take; what takes longer is shown faster


@dataclass
class Cast:
    """A recording: what the terminal got, each part with its time in seconds."""

    columns: int = COLUMNS
    rows: int = ROWS
    events: list[tuple[float, str]] = field(default_factory=list)
    end: float = 0.0

    def add(self, text: str, after: float) -> None:
        """Add output, *after* seconds later than the last one, or :data:`LONGEST` if that is less."""
        self.end = round(self.end + min(after, LONGEST), 3)
        if text:
            self.events.append((self.end, text))

    def play(self, parts: Sequence[tuple[float, str]], within: float = COMMAND) -> None:
        """Add the output of one command, each part with the seconds since the last; all *within* that many seconds."""
        gaps = [min(after, LONGEST) for after, _ in parts]
        faster = max(1.0, sum(gaps) / within)
        for gap, (_, text) in zip(gaps, parts, strict=True):
            self.add(text, gap / faster)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.end = round(self.end + seconds, 3)

    def text(self) -> str:
        """The file's text; an empty last event keeps the end."""
        head = {"version": 2, "width": self.columns, "height": self.rows, "title": "winlab"}
        events = [*self.events, (self.end, "")]
        return "\n".join([json.dumps(head), *(json.dumps([at, "o", text]) for at, text in events)]) + "\n"

    @classmethod
    def read(cls, text: str) -> Cast:
        """The recording of a file's text; ValueError if it is of another version."""
        head, *rows = (json.loads(line) for line in text.splitlines() if line.strip())
        if head.get("version") != 2:
            raise ValueError("only version 2 of asciicast can be read")
        events = [(float(at), part) for at, kind, part in rows if kind == "o"]
        return cls(
            head["width"], head["height"], [one for one in events if one[1]], max([0.0, *(e[0] for e in events)])
        )


def record(commands: Sequence[str], columns: int = COLUMNS, rows: int = ROWS) -> tuple[Cast, int]:
    """Run *commands* one after another, each on a clear screen, until one fails; its exit code, or 0."""
    cast = Cast(columns, rows)
    for command in commands:
        print(f"$ {command}", flush=True)
        cast.add(CLEAR + PROMPT, 0)
        cast.wait(0.5)
        for letter in command:
            cast.add(letter, LETTER)
        cast.add("\r\n", 0.3)
        code = _run(command, cast)
        cast.wait(PAUSE)
        if code:
            print(f"ended with exit code {code}", file=sys.stderr)
            return cast, code
    return cast, 0


def _run(command: str, cast: Cast) -> int:
    """Run a command in a terminal of the recording's size; returns its exit code."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", cast.rows, cast.columns, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(cast.columns), "LINES": str(cast.rows)}
    words = ["setsid", "--ctty", "--wait", "bash", "-c", command]
    with subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=env) as process:
        os.close(its)
        before = time.monotonic()
        parts = []
        for text in _output(ours):
            now = time.monotonic()
            parts.append((now - before, text))
            before = now
    os.close(ours)
    cast.play(parts)
    return process.returncode


def _output(terminal: int) -> Iterator[str]:
    """What comes from the terminal until all that have it open have ended; letters are never split."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux' answer once the other side is closed
            return
        if not part:
            return
        yield decoder.decode(part)
