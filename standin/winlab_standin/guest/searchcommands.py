"""Commands that look for text. They know plain text; regular expressions are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from winlab_standin.guest import cmdline

if TYPE_CHECKING:
    from collections.abc import Callable

    from winlab_standin.guest.shell import Shell, Streams


def findstr(shell: Shell, rest: str, streams: Streams) -> int:
    """``findstr [/i] [/v] [/x] [/l] TEXT|/c:TEXT [FILE]``: plain text only, in one file or in the input."""
    words = cmdline.split(rest)
    phrases = [word[3:] for word in words if word.lower().startswith("/c:")]
    flags = {word.lower() for word in words if word.startswith("/") and not word.lower().startswith("/c:")}
    plain = [word for word in words if not word.startswith("/")]
    if len(phrases) > 1 or not (phrases or plain) or flags - {"/i", "/l", "/v", "/x"}:
        streams.err("FINDSTR: Bad command line (the stand-in knows /i /v /x /l and one /c:)\r\n")
        return 2
    if not phrases and "/l" not in flags and re.search(r"[\\.*^$\[\]]", plain[0]):
        streams.err("FINDSTR: the stand-in knows no regular expressions; give /l or /c:\r\n")
        return 2
    needles = phrases or plain[0].split() or [plain[0]]
    return _search(shell, needles, plain if phrases else plain[1:], flags, streams)


def find_(shell: Shell, rest: str, streams: Streams) -> int:
    """``find [/i] [/v] "TEXT"``, in the input."""
    words = cmdline.split(rest)
    flags = {word.lower() for word in words if word.startswith("/")}
    plain = [word for word in words if not word.startswith("/")]
    if len(plain) != 1 or flags - {"/i", "/v"} or f'"{plain[0]}"' not in rest:
        streams.err('FIND: Parameter format not correct (the stand-in knows [/i] [/v] "TEXT", without a file)\r\n')
        return 2
    return _search(shell, plain, [], flags, streams)


def _search(shell: Shell, needles: list[str], files: list[str], flags: set[str], streams: Streams) -> int:
    if len(files) > 1:
        streams.err("FINDSTR: the stand-in looks into one file only\r\n")
        return 2
    text = "" if files else streams.read()
    for name in files:
        real = shell.path(name)
        if real is None or not real.is_file():
            streams.err(f"FINDSTR: Cannot open {name}\r\n")
            return 1
        text = real.read_text(errors="replace")

    def same(line: str) -> bool:
        pairs = [(line.lower(), needle.lower()) if "/i" in flags else (line, needle) for needle in needles]
        return any(needle == where if "/x" in flags else needle in where for where, needle in pairs)

    hits = [line for line in text.splitlines() if same(line) != ("/v" in flags)]
    streams.out("".join(f"{line}\r\n" for line in hits))
    return 0 if hits else 1


PROGRAMS: dict[str, Callable[[Shell, str, Streams], int]] = {
    "findstr": findstr,
    "find": find_,
}
