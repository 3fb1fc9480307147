"""Batch files: only winlab's pe.cmd, simulated. It must be exactly that file, with the line ends that cmd.exe needs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from winlab_standin.guest.releases import BUSY_DISKS

if TYPE_CHECKING:
    from winlab_standin.guest.world import World

KNOWN = Path("/usr/lib/standin/known.json")


def play(path: Path | None, world: World, err: Callable[[str], None], known: Path = KNOWN) -> int:
    """Do what ``pe.cmd`` does in Windows PE: name the serial port, report the phase, watch Setup's error log.

    :returns: the exit code; not 0 for any other file.
    """
    if path is None or not path.is_file():
        err("The system cannot find the path specified.\r\n")
        return 1
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != json.loads(known.read_text())["pe_sha256"]:
        err(f"{path.name} : this is not the script that these stand-in media know; build the media again\r\n")
        return 1
    world.has_com1 = world.watches = True
    if BUSY_DISKS in world.windows.traps:
        world.holds_disks = re.search(rb"^(?!rem\b).*\bdiskpart\b", content, re.MULTILINE | re.IGNORECASE) is not None
    world.serial("winlab: phase=windowsPE\r\n")
    return 0
