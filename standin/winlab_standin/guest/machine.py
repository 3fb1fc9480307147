"""The machine on which winlab's scripts for Windows workers are simulated, and how they fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from winlab_standin.guest.node import Node
from winlab_standin.guest.winservices import Manager
from winlab_standin.guest.world import World


class ScriptError(Exception):
    """An error that a script would throw: shown on the error stream, exit code 1."""


class FileError(ScriptError):
    """powershell.exe does not find the file."""


@dataclass
class Machine:
    """What a simulated script works on: C: and the payload CD as folders, the services, and where output goes."""

    root: Path
    cd: Path
    config: Path
    services: Manager
    world: World
    tell: Callable[[str], None]
    letter: str = "D"

    @property
    def node(self) -> Node:
        """What Windows knows about itself."""
        return Node(self.world, self.services, self.config)

    def c(self, path: str) -> Path:
        """The file behind a path on C:, given with slashes."""
        return self.root / path


Settings = dict[str, Any]
Player = Callable[[Machine, Settings], dict[str, Any]]
