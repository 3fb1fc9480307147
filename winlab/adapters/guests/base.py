"""What every guest can do, whichever its system."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Protocol

from winlab import run

Sink = Callable[[bytes], None]


def discard(_chunk: bytes) -> None:
    """A sink for output that nobody wants."""


class Guest(Protocol):
    """A guest that can be logged in to. Connections are verified with the keys that winlab made."""

    def execute(
        self, command: Sequence[str], stdout: Sink = discard, stderr: Sink = discard, stdin: bytes = b""
    ) -> int:
        """Run a command with *stdin* as its whole input, hand over what it prints as it comes, return its exit code.

        :raises GuestError: the guest can't be reached, is not the one it should be, or refuses the login.
        """

    def close(self) -> None:
        """End the connection."""


def command_line(system: str, command: Sequence[str]) -> str:
    """The words of a command as one line for the guest's shell. A single word is taken as a whole line."""
    if len(command) == 1:
        return command[0]
    return shlex.join(command) if system == "linux" else run.windows_line(command)
