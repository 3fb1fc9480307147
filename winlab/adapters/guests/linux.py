"""How Linux nodes run winlab's program, which is copied to them over ssh."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from winlab.adapters.guests import node_program
from winlab.adapters.guests.base import Execute

PROGRAM = "/run/winlab/node.pyz"


class LinuxWays:
    """See :class:`winlab.adapters.guests.base.Ways`."""

    def line(self, words: Sequence[str]) -> str:
        """A line for a POSIX shell."""
        return shlex.join(words)

    def by_ssh(self, line: str) -> str:
        """Unchanged: sshd's own settings decide."""
        return line

    def understands(self, execute: Execute) -> bool:  # noqa: ARG002
        """Always: it is winlab's own image, or a distribution's."""
        return True

    @property
    def signs(self) -> Mapping[str, str]:
        """None: a Linux node reports everything on its serial port, and may have no agent."""
        return {}

    def place(self, execute: Execute) -> str:
        """Copy the program into the node; returns its path."""
        write = f"mkdir -p /run/winlab && cat >{PROGRAM}.new && mv {PROGRAM}.new {PROGRAM}"
        execute(["sudo", "sh", "-c", write], node_program.build())
        return PROGRAM

    def command(self, place: str, script: str) -> list[str]:
        """The program contains all scripts; its argument names one."""
        return ["sudo", "python3", place, script]

    def is_missing(self, code: int) -> bool:  # noqa: ARG002
        """Never: the program does not move."""
        return False

    def sees(self, execute: Execute, file: str, *, there: bool) -> bool:  # noqa: ARG002
        """Always: the program mounts the CD each time it reads it."""
        return True

    @property
    def shut_down(self) -> str:
        """See the interface."""
        return "sudo systemctl --no-block poweroff"

    @property
    def clock(self) -> str:
        """See the interface."""
        return "date +%s%3N"

    @property
    def quick_clock(self) -> bool:
        """See the interface."""
        return True

    def step_clock(self, milliseconds: int) -> str:
        """See the interface. The hardware clock needs nothing: QEMU keeps it at the host's time."""
        sign = "-" if milliseconds < 0 else "+"
        whole, rest = divmod(abs(milliseconds), 1000)
        return f"sudo date --set='{sign}{whole}.{rest:03} seconds'"
