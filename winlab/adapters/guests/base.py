"""What every guest can do, regardless of its system, and how each system does what winlab needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from winlab.errors import GuestError

Sink = Callable[[bytes], None]
Input = bytes | Iterator[bytes]  # all of it, or pieces that come while the command runs
TRIES, PAUSE = 20, 1.5  # seconds between tries, while a CD that was just inserted is not visible yet


def discard(_chunk: bytes) -> None:
    """A sink for output that is not needed."""


def patient() -> None:
    """Wait for a command for as long as it runs."""


def at_most(seconds: float) -> Callable[[], None]:
    """A limit for a command that should take no time: a guest may accept it and never end it.

    :returns: what to pass as *waiting*; it raises GuestError after *seconds*.
    """
    end = time.monotonic() + seconds

    def check() -> None:
        if time.monotonic() > end:
            raise GuestError(f"A command in a guest did not end within {seconds:.0f} s.")

    return check


class Kept:
    """A sink that keeps output, up to a limit.

    :param most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()

    def __call__(self, chunk: bytes) -> None:
        """Keep the next piece.

        :raises GuestError: there is too much.
        """
        self._kept += chunk
        if len(self._kept) > self._most:
            raise GuestError(f"A command in a guest printed more than {self._most >> 10} KiB.")

    def __str__(self) -> str:
        return self._kept.decode(errors="replace")


class Guest(Protocol):
    """A guest that can be logged in to. Connections are verified with the keys that winlab made."""

    def execute(
        self,
        command: Sequence[str],
        stdout: Sink = discard,
        stderr: Sink = discard,
        stdin: Input = b"",
        waiting: Callable[[], None] = patient,
    ) -> int:
        """Run a command with *stdin* as its whole input, pass on its output as it comes, and return its exit code.

        :param waiting: called every few seconds while it runs; an error that this raises ends the command.
        :raises GuestError: the guest can't be reached, is not the expected one, or refuses the login.
        """

    def close(self) -> None:
        """End the connection."""


class Execute(Protocol):
    """Runs a command in a guest."""

    def __call__(self, command: list[str], stdin: bytes = b"") -> str:
        """Run it; returns its output.

        :raises GuestError: it failed.
        """


class Ways(Protocol):
    """How a system does what winlab needs of its nodes: linux.py and windows.py."""

    def line(self, words: Sequence[str]) -> str:
        """The words of a command as one line for the guest's shell: the program gets each as it is.

        :raises UsageError: the shell can't be given one of them.
        """

    def by_ssh(self, line: str) -> str:
        """The line for a shell that ssh starts, with UTF-8 as the encoding of every program."""

    def understands(self, execute: Execute) -> bool:
        """Whether the shell that ssh starts is the one that winlab's lines are for.

        :raises GuestError: it can't be asked.
        """

    @property
    def signs(self) -> Mapping[str, str]:
        """Command lines that show why logins fail, by what they show, for the guest's agent; empty without one."""

    def place(self, execute: Execute) -> str:
        """Find winlab's scripts in the guest, or copy them there.

        :returns: where they are; empty if they are not available yet.
        :raises GuestError: a command failed.
        """

    def command(self, place: str, script: str) -> list[str]:
        """The command that runs a script, with its settings on the standard input."""

    def is_missing(self, code: int) -> bool:
        """Whether that command's exit code says that the script is not where it was a moment ago."""

    def sees(self, execute: Execute, file: str, *, there: bool) -> bool:
        """Whether the guest has noticed that the CD with *file* was inserted (*there*) or removed.

        :param file: its path on the CD: ``push/kubelet.exe``.
        :raises GuestError: a command failed.
        """

    @property
    def shut_down(self) -> str:
        """The command line that asks the guest to shut down and switch off; it does not wait for that."""

    @property
    def clock(self) -> str:
        """The command line that prints the guest's clock: milliseconds since 1970, UTC."""

    @property
    def quick_clock(self) -> bool:
        """Whether that takes no longer than any other command."""

    def step_clock(self, milliseconds: int) -> str:
        """The command line that sets the guest's clock forward, or back if the number is negative."""
