"""Whether machines that are off fit into their hypervisors' memory; otherwise one is killed without warning."""

from __future__ import annotations

from collections.abc import Sequence

from winlab.adapters.vm import domains
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.errors import HostError


def require(hosts: Hypervisors, machines: Sequence[Machine]) -> None:
    """Check that the machines that are off can be started.

    :raises HostError: there is not enough memory.
    """
    for host in hosts:
        off = [one for one in machines if one.state in domains.OFF and one.hypervisor == host.name]
        needed = sum(domains.memory_mib(host.conn, one) for one in off)
        if off and needed > (free := domains.free_memory_mib(host.conn)):
            raise HostError(
                f"The nodes need {needed} MiB of memory, but the hypervisor has only {free} MiB free.",
                cure="Stop another lab with 'winlab stop --lab NAME', or start fewer nodes.",
            )
