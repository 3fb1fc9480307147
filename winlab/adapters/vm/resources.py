"""What hypervisors have: memory, cores, room in their pools, and what they have promised to machines."""

from __future__ import annotations

from functools import partial

import libvirt

from winlab import stopping
from winlab.adapters.vm.connection import answering
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.adapters.vm.volumes import MARKER
from winlab.design.plan import volume_names
from winlab.design.plan.hosts import HostStock
from winlab.errors import WinlabError
from winlab.threads import Threads

LIMIT = 20.0  # seconds for one hypervisor: a libvirtd that is stuck keeps its connections open


def of_all(hosts: Hypervisors, lab: str) -> tuple[HostStock, ...]:
    """What each hypervisor has; all are asked at the same time, and one that does not answer is a value, too.

    :param lab: the lab that is planned.
    :raises HostError: it is not known which hypervisors there are.
    """
    for one in hosts.silent:
        if not one.name:
            raise one.refusal("and nodes may have to be placed on them")
    with Threads(len(hosts.each)) as threads:
        asked = tuple(threads.map(partial(_answer, lab=lab), hosts))
    return (*asked, *(HostStock(name=one.name, trouble=one.reason) for one in hosts.silent))


def _answer(host: Hypervisor, lab: str) -> HostStock:
    try:
        return stopping.patiently(partial(of, host, lab), limit=LIMIT)
    except TimeoutError as error:
        return HostStock(name=host.name, trouble=str(error))
    except WinlabError as error:
        return HostStock(name=host.name, trouble=error.why or error.what)


@answering()
def free_memory_mib(conn: libvirt.virConnect) -> int:
    """How much memory the hypervisor could give to guests now, in MiB: free memory and caches."""
    stats = conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    return sum(int(stats.get(key, 0)) for key in ("free", "buffers", "cached")) // 1024


@answering()
def of(host: Hypervisor, lab: str) -> HostStock:
    """What a hypervisor has, also of a lab.

    virNodeGetInfo's memory is that of one NUMA node and may be wrong, so that virNodeGetMemoryStats is asked.

    :raises HostError: libvirt does not answer, or has no storage pool.
    :raises UsageError: its facts can't be read.
    """
    stats = host.conn.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
    promised = [_promised(domain) for domain in host.conn.listAllDomains()]
    names = set(host.pool.names())
    nodes = {machine.tag.node for machine in host.machines(lab)} | {volume_names.node_of(name, lab) for name in names}
    return HostStock(
        name=host.name,
        facts=host.facts,
        memory_mib=int(stats.get("total", 0)) >> 10,
        free_mib=free_memory_mib(host.conn),
        promised_mib=sum(kib for kib, _ in promised) >> 10,
        cores=int(host.conn.getInfo()[2]),
        promised_cpus=sum(cpus for _, cpus in promised),
        pool_free=host.pool.free(patient=False),
        bases=frozenset(name for name in names if name.startswith("base-") and name + MARKER in names),
        nodes=frozenset(node for node in nodes if node is not None),
    )


def _promised(domain: libvirt.virDomain) -> tuple[int, int]:
    """The memory in KiB and the CPUs that a domain may take; nothing if it was removed meanwhile."""
    try:
        _, most, _, cpus, _ = domain.info()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return 0, 0
    return int(most), int(cpus)
