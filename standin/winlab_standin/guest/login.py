"""What ssh starts: cmd.exe for a session, or for one command."""

from __future__ import annotations

import sys

from winlab_standin.guest.commands import COMMANDS
from winlab_standin.guest.shell import Shell, Streams, interactive
from winlab_standin.guest.world import World


def main(arguments: list[str]) -> int:
    """What ssh starts: ``cmd`` for a session, ``cmd -c LINE`` for a command."""

    def out(text: str) -> None:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()

    def err(text: str) -> None:
        sys.stderr.buffer.write(text.encode("utf-8"))
        sys.stderr.buffer.flush()

    def prompt(text: str) -> str | None:
        try:
            if sys.stdin.isatty():
                return input(text)
            out(text)
            line = sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            return None
        if line:
            out(line.rstrip("\r\n") + "\r\n")
        return line.rstrip("\r\n") if line else None

    def read() -> str:
        return "" if sys.stdin.isatty() else sys.stdin.read()

    shell = Shell(World.real(), COMMANDS)
    streams = Streams(out, err, read)
    if arguments[1:2] in (["-c"], ["/c"]):
        return shell.run(" ".join(arguments[2:]), streams)
    return interactive(shell, streams, prompt)
