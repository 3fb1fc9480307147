"""Machines whose first boot was cut off: by a power cut, by a kill of their QEMU, or by a kernel that gave up.

Files that were just written may be empty then, and neither cloud-init nor Windows Setup goes on from there. Seen:
cloud-init 25.1 fails at each boot, since its network-config.json is empty. Nobody has used such a machine yet, so it
gets a new disk.
"""

from __future__ import annotations

import re

from winlab.adapters.vm import domains, first_boot
from winlab.design.plan.model import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine.run import Run

READY = "ready"  # the last phase of every system's first boot
PHASE = re.compile(rb"winlab: phase=([\w-]+)(?=[^\w-])")


def is_cut_off(run: Run, node: NodePlan) -> bool:
    """Whether a node's machine has ended, and was never heard to be ready."""
    if domains.state(run.conn, node.domain) not in (*domains.OFF, domains.CRASHED):
        return False
    return first_boot.is_marked(run.conn, node.domain) and READY not in phases(run, node)


def phases(run: Run, node: NodePlan) -> list[str]:
    """The phases that a node's machine has reported, the first one first; also those of logs that were rotated."""
    run.pool.refresh()
    names = run.pool.names(serial_log(run.lab, node.name))
    # virtlogd.conf(5), max_backups: the higher its number, the older a log
    text = b"".join(run.pool.download(name) for name in sorted(names, key=_number, reverse=True))
    return [found.decode() for found in PHASE.findall(text)]


def _number(name: str) -> int:
    number = name.rpartition(".")[2]
    return int(number) if number.isdecimal() else -1
