"""Simulates faults.ps1 (see scripts.py): the clock is really wrong, and the disk really full.

Not real: the time service. Only faults.ps1's record of it is written.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from winlab_standin.guest.machine import Machine, Player, Settings
from winlab_standin.guest.workerfiles import write

RECORD, FILL = "winlab/clock.json", "winlab/faults.fill"
NEAR = 60  # seconds, as in faults.ps1
SLACK = 1 << 20  # bytes


def faults(machine: Machine, given: Settings) -> dict[str, Any]:
    """faults.ps1: move the clock, fill the disk with a file."""
    record, fill = machine.c(RECORD), machine.c(FILL)
    skew, free, now = given.get("skew"), given.get("free"), int(given.get("now") or 0)
    changed = False
    if free is None and fill.exists():
        fill.unlink()
        changed = True
    done = json.loads(record.read_text()) if record.is_file() else None
    if skew is not None:
        before = done["skew"] if done else 0
        row = done or {"skew": 0, "start": "Manual", "ran": True}
        write(record, json.dumps(row))
        set_clock(before, int(skew), now)
        write(record, json.dumps({**row, "skew": int(skew)}))
        changed = changed or before != skew
    elif done:
        set_clock(done["skew"], 0, now)
        record.unlink()
        changed = True
    if free is not None and set_fill(machine, int(free)):
        changed = True
    return {"changed": changed}


def set_clock(before: int, wanted: int, now: int) -> None:
    """Move the clock by the difference if it is as it was left; otherwise set it by the host's."""
    clock = time.time()
    off = clock - now
    if abs(off - wanted) < NEAR and before == wanted:
        return
    time.clock_settime(time.CLOCK_REALTIME, clock + wanted - before if abs(off - before) < NEAR else now + wanted)


def set_fill(machine: Machine, free: int) -> bool:
    """Have a file take all space of C: except so many bytes; returns whether something changed."""
    path = machine.c(FILL)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        room = os.fstatvfs(file.fileno())
        excess, size = room.f_bfree * room.f_frsize - free, file.seek(0, os.SEEK_END)
        if abs(excess) < SLACK:
            return False
        if excess < 0:
            os.ftruncate(file.fileno(), max(0, size + excess))
        else:
            os.posix_fallocate(file.fileno(), size, max(SLACK, excess - SLACK))
    return True


def settle_fill(machine: Machine) -> None:
    """Allocate the file's space, as NTFS does for a length alone."""
    path = machine.c(FILL)
    if path.is_file():
        about = path.stat()
        if about.st_blocks * 512 + SLACK < about.st_size:
            with path.open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, about.st_size)


PLAYERS: dict[str, Player] = {"faults.ps1": faults}
