"""Volumes on the disks of their hosts: libvirt leaves what was uploaded in the host's memory."""

from __future__ import annotations

import os
from collections.abc import Iterable

from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.threads import Threads

WRITING = 600.0  # seconds: a host may have several GiB to write


def flush(hosts: Iterable[Hypervisor]) -> None:
    """Make hosts write all volumes to their disks: libvirt itself does not (src/util/virfdstream.c).

    It has no call for that, so other hosts are asked by ssh.

    :raises HostError: ssh does not connect, or the host does not end in time.
    """
    each = list(hosts)
    with Threads(len(each)) as threads:
        for done in [threads.submit(_flush, host) for host in each]:
            done.result()


def _flush(host: Hypervisor) -> None:
    there = host.remote
    if there is None:
        os.sync()
    else:
        there.call("sync", limit=WRITING)
