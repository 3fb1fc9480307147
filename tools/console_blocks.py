#!/usr/bin/env python3
"""Runs the console blocks of a page to the letter, and compares what they print: ``tools/console_blocks.py PAGE``.

A block begins with three backticks and the word ``console``. In it ``$ `` begins a command and ``> `` continues it. The
lines below are what it prints, its standard error included; without any, nothing is compared. The shape counts: any
number matches any other, and any blanks match each other. Blanks around a line, and empty lines around all, don't
count. ``...`` matches the rest of a line or a part of it, and alone on a line any number of lines. A line such as
``(exit code 22)`` names another exit code than 0.

All commands of a page run in one bash, in the order of the page; the first that differs ends the run.
"""

from __future__ import annotations

import re
import subprocess  # noqa: TID251 - runs what users type
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MARK = "console-blocks-end"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
CODE = re.compile(r"\(exit code (\d+)\)")
NUMBER = r"\d+(?:\.\d+)?"


@dataclass
class Command:
    """A command of a page: its line there, and what it should print."""

    line: int
    text: str
    lines: list[str] = field(default_factory=list)
    code: int = 0

    def problem(self, printed: Sequence[str], code: int) -> str:
        """How its output and exit code differ from the page's; empty if they don't."""
        if code != self.code:
            return f"exit code {code} instead of {self.code}"
        if self.lines and not pattern(_stripped(self.lines)).fullmatch("\n".join([*_stripped(printed), ""])):
            return "its output differs from: " + "\n".join(["", *self.lines])
        return ""


def commands(page: str) -> Iterator[Command]:
    """The commands of a page's console blocks.

    :raises ValueError: a block does not begin with a command.
    """
    for block in BLOCK.finditer(page):
        now: Command | None = None
        for number, line in enumerate(block[1].splitlines(), page[: block.start(1)].count("\n") + 1):
            if line.startswith("$ "):
                if now:
                    yield now
                now = Command(number, line[2:])
            elif now is None:
                raise ValueError(f"line {number}: the block does not begin with a command")
            elif line.startswith("> ") and not now.lines:
                now.text += "\n" + line[2:]
            elif code := CODE.fullmatch(line):
                now.code = int(code[1])
            else:
                now.lines.append(line)
        if now:
            yield now


def _stripped(lines: Sequence[str]) -> list[str]:
    return "\n".join(line.strip() for line in lines).strip("\n").split("\n")


def pattern(lines: Sequence[str]) -> re.Pattern[str]:
    """What a page shows, as an expression for all outputs of that shape; each line ends with a line feed."""
    text = "".join(r"(?:[^\n]*\n)*?" if line == "..." else f"{_line(line)}\n" for line in lines)
    return re.compile(text)


def _line(line: str) -> str:
    pieces = [one for one in re.split(rf"(\.\.\.|{NUMBER}|\s+)", line) if one]
    return "".join(_piece(one) for one in pieces)


def _piece(text: str) -> str:
    if text == "...":
        return r"[^\n]*"
    if text.isspace():
        return r"[ \t]+"
    return NUMBER if re.fullmatch(NUMBER, text) else re.escape(text)


class Shell:
    """A bash that runs commands one after another, as at a prompt, but without a terminal."""

    def __init__(self) -> None:
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        words = ["bash", "--noprofile", "--norc"]
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=both, text=True, errors="replace")

    def run(self, command: str) -> tuple[list[str], int]:
        """Run a command; returns the lines that it printed and its exit code, or bash's own if bash ended."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{MARK} %s\\n' $?\n")
        process.stdin.flush()
        lines: list[str] = []
        for line in process.stdout:
            if line.startswith(MARK):
                return lines[:-1] if lines and not lines[-1] else lines, int(line.split()[1])
            print(f"  {line.rstrip()}", flush=True)
            lines.append(line.rstrip("\n"))
        return lines, process.wait()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def check(path: Path) -> int:
    """Run a page; returns 1, and prints why, if a command does not do what the page shows."""
    shell, count = Shell(), 0
    try:
        for command in commands(path.read_text(encoding="utf-8")):
            print(f"{path}:{command.line}: $ {command.text}", flush=True)
            if problem := command.problem(*shell.run(command.text)):
                print(f"{path}:{command.line}: {problem}", file=sys.stderr)
                return 1
            count += 1
    finally:
        shell.close()
    print(f"{path}: {count} commands do what the page shows")
    return 0


if __name__ == "__main__":
    sys.exit(max(check(Path(page)) for page in sys.argv[1:]))
