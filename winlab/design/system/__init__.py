"""The systems of nodes: one file each, with the facts in which it differs, for other layers to read. Pure."""

from __future__ import annotations

from winlab.design.system.linux import LINUX
from winlab.design.system.model import Paths, System, SystemName, Taint
from winlab.design.system.windows import WINDOWS

SYSTEMS = (LINUX, WINDOWS)

__all__ = ["LINUX", "SYSTEMS", "WINDOWS", "Paths", "System", "SystemName", "Taint", "get"]


def get(name: str) -> System:
    """The system *name*; KeyError if there is none."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise KeyError(name)
