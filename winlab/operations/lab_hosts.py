"""The hypervisors that a lab's nodes are on, as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from winlab import stopping
from winlab.adapters.vm import connection, resources
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import WinlabError
from winlab.operations.look import LOOKING, LOST, UNKNOWN, NodeStatus
from winlab.site import Site
from winlab.threads import Threads

ANSWERS = "answers"


@dataclass(frozen=True)
class HostStatus:
    """A hypervisor of a lab.

    :param state: ``answers``, ``unknown`` (it does not answer) or ``lost`` (it was forgotten).
    :param nodes: the lab's nodes on it.
    :param memory_mib: its memory; None if it does not answer, or was not asked.
    :param free_mib: how much of it guests could still get: free memory and caches.
    :param problem: why it does not answer.
    """

    name: str
    state: str
    nodes: tuple[str, ...]
    memory_mib: int | None = None
    free_mib: int | None = None
    problem: str = ""


def of(nodes: Sequence[NodeStatus], site: Site, *, ask: bool = True) -> list[HostStatus]:
    """The hypervisors of these nodes of a lab, the first one first; none if all are on the first.

    :param ask: connect to them, for their memory. Otherwise their states are as the nodes' say.
    :raises HostError: the first hypervisor's libvirt does not answer.
    """
    named = sorted({node.hypervisor for node in nodes}, key=lambda name: (name != HYPERVISOR, name))
    if named in ([], [HYPERVISOR]):
        return []
    if not ask:
        return [_seen(name, [node for node in nodes if node.hypervisor == name]) for name in named]
    with site.hypervisors(LOOKING) as hosts, Threads(len(hosts.each)) as threads:
        memory = {one.name: threads.submit(_memory, one) for one in hosts if one.name in named}
    silent = {one.name: str(one) for one in hosts.silent}
    found = []
    for name in named:
        own = [node for node in nodes if node.hypervisor == name]
        there = tuple(node.tag.node for node in own)
        if name in memory:
            total, free, problem = memory[name].result()
            found.append(HostStatus(name, UNKNOWN if problem else ANSWERS, there, total, free, problem))
        else:
            state = LOST if own[0].state == LOST else UNKNOWN
            found.append(HostStatus(name, state, there, problem=silent.get(name) or own[0].problem))
    return found


def _seen(name: str, nodes: Sequence[NodeStatus]) -> HostStatus:
    """A hypervisor as its nodes' states show it."""
    state = next((node.state for node in nodes if node.state in (UNKNOWN, LOST)), ANSWERS)
    problem = "" if state == ANSWERS else nodes[0].problem
    return HostStatus(name, state, tuple(node.tag.node for node in nodes), problem=problem)


def _memory(host: Hypervisor) -> tuple[int | None, int | None, str]:
    """A hypervisor's memory and what is free of it, in MiB; and why it does not say so."""
    try:
        return stopping.patiently(
            lambda: (connection.capacity(host.conn)[1], resources.free_memory_mib(host.conn), ""), limit=LOOKING
        )
    except TimeoutError as error:
        return None, None, f"libvirt does not answer a question: {error}."
    except WinlabError as error:
        return None, None, error.what
