"""Whether machines that are off fit into their hypervisors' memory; otherwise one is killed without warning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from winlab.adapters.vm import domains, resources
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Placed
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.errors import HostError
from winlab.steps.amendment import Amendment


def require(hosts: Hypervisors, machines: Sequence[Machine]) -> None:
    """Check that the machines that are off can be started.

    :raises HostError: there is not enough memory.
    """
    for host in hosts:
        off = [one for one in machines if one.state in domains.OFF and one.hypervisor == host.name]
        cure = "Stop another lab with 'winlab stop --lab NAME', or start fewer nodes."
        _require(host, "The nodes need", sum(domains.memory_mib(host.conn, one) for one in off), 0, cure)


def require_for(
    plan: Plan,
    hosts: Hypervisors,
    amendment: Amendment = Amendment(),  # noqa: B008 - frozen
    shares: Mapping[str, float] = MappingProxyType({}),
    copies: int = 1,
) -> None:
    """Check that the plan's machines that are not yet started can be started.

    :param amendment: what changes in an existing lab: machines that are restarted or removed.
    :param shares: how much of their memory machines take, by node, if it is less than all of it: copies share what
        they don't change.
    :param copies: how many labs like this one are made at the same time.
    :raises HostError: there is not enough memory.
    """
    for host in hosts:
        nodes = [node for node in plan.nodes if node.hypervisor == host.name]
        started = {machine.uuid for machine in host.machines(plan.lab) if machine.state not in domains.OFF}
        changed = [node for node in amendment.restarted if node in nodes]
        off = [node for node in nodes if node.uuid not in started]
        needed = int(copies * sum(shares.get(node.name, 1.0) * node.memory_mib for node in off))
        needed += sum(node.memory_mib for node in changed) - _taken(host, changed, started)
        freed = _taken(host, [one for name, one in amendment.removed.items() if name not in amendment.rebuilt], started)
        cure = "Stop other labs or programs, choose a smaller spec, or give nodes less with --set workers.memory=..."
        if copies > 1:
            cure = "Stop other labs or programs, or make fewer copies."
        _require(host, "The lab needs" if copies == 1 else f"{copies} copies need", needed, freed, cure)


def _taken(host: Hypervisor, machines: Iterable[Placed], started: Collection[str]) -> int:
    return sum(domains.sizes(host.conn, one, now=True)[1] for one in machines if one.uuid in started)


def _require(host: Hypervisor, who_needs: str, needed: int, freed: int, cure: str) -> None:
    if needed > 0 and needed > (free := resources.free_memory_mib(host.conn) + freed):
        which = "the hypervisor" if host.name == HYPERVISOR else f"'{host.name}'"
        raise HostError(f"{who_needs} {needed} MiB of memory, but {which} has only {free} MiB free.", cure=cure)
