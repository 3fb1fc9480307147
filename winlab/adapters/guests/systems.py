"""The ways of each system."""

from __future__ import annotations

from collections.abc import Sequence

from winlab.adapters.guests.base import Ways
from winlab.adapters.guests.linux import LinuxWays
from winlab.adapters.guests.windows import WindowsWays
from winlab.design.system import LINUX, WINDOWS, System

_WAYS: dict[str, Ways] = {LINUX.name: LinuxWays(), WINDOWS.name: WindowsWays()}


def ways(system: System) -> Ways:
    """How nodes with this system do what winlab needs."""
    return _WAYS[system.name]


def command_line(system: System, command: Sequence[str]) -> str:
    """A command as one line for the guest's shell. A single word is taken as a whole line."""
    return command[0] if len(command) == 1 else ways(system).line(command)
