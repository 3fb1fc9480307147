"""Machines whose first boot was cut off: by a power cut, by a kill of their QEMU, or by a kernel crash.

Files that were just written may then be empty, and neither cloud-init nor Windows Setup recovers from that. Seen:
cloud-init 25.1 fails at each boot, because its network-config.json is empty. No one has used such a machine yet, so
it gets a new disk.
"""

from __future__ import annotations

import re

from winlab.adapters.vm import disks, domains, first_boot
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.domain import serial_log
from winlab.engine.run import Run

QCOW2 = b"QFI\xfb"  # how such a file begins. Source: QEMU's docs/interop/qcow2.txt
READY = "ready"  # the last phase of every system's first boot
# The first boot ended, successfully or not: the user may have continued manually from there
ENDED = re.compile(rb"winlab: (phase=ready|error=)")


def is_cut_off(run: Run, node: NodePlan) -> bool:
    """Whether a node's machine ended during its first boot, and not cleanly. One that never started counts as new."""
    host = run.on(node)
    if domains.state(host.conn, node) not in (*domains.OFF, domains.CRASHED):
        return False
    if not first_boot.is_marked(host.conn, node) or domains.ended_in_order(host.conn, node):
        return False
    host.pool.refresh()
    if not host.pool.exists(disks.live(host, node).name):  # winlab was killed while it made a new one
        return True
    # including rotated logs (virtlogd.conf(5), max_backups)
    said = b"".join(host.pool.download(name) for name in host.pool.names(serial_log(run.lab, node.name)))
    if ENDED.search(said) is not None:
        return False
    return bool(said) or not has_disk(run, node)  # a new disk may not have reached the host's own disk yet


def has_disk(run: Run, node: NodePlan) -> bool:
    """Whether a machine's disk exists and has the header of its format."""
    pool, disk = run.on(node).pool, disks.live(run.on(node), node)
    return pool.exists(disk.name) and (disk.format != "qcow2" or pool.download(disk.name, most=len(QCOW2)) == QCOW2)
