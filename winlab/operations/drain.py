"""``winlab hypervisor drain``: a host gets no new nodes, and the user's nodes on it are moved to others."""

from __future__ import annotations

from dataclasses import dataclass

from winlab import account
from winlab.adapters.vm.domains import Machine
from winlab.design.plan import placement
from winlab.errors import ConflictError, WinlabError, together
from winlab.events import Listener
from winlab.operations import move, planning, recorded, registry
from winlab.operations.move import Moved
from winlab.site import Site


@dataclass(frozen=True)
class Drained:
    """A hypervisor, whether it takes no new nodes, and the nodes that were moved away."""

    name: str
    drained: bool
    moved: tuple[Moved, ...] = ()


def drain(name: str, site: Site, tell: Listener, *, undo: bool = False) -> Drained:
    """Move all nodes of the user's labs away from a hypervisor, and have no new ones placed there. Safe to repeat.

    :param undo: only let it take new nodes again; nothing moves back.
    :raises NotFoundError: there is no such hypervisor.
    :raises ConflictError: labs of other users have nodes there; the user's own were moved.
    :raises WinlabError: a node can't be moved; the others were.
    """
    if name not in registry.names(site):
        raise registry.unknown(name, site)
    with site.overlay() as northbound:
        northbound.set_drained(name, wanted=not undo)
    if undo:
        return Drained(name, drained=False)
    done: list[Moved] = []
    problems: list[Exception] = []
    others: list[Machine] = []
    for machine in _there(name, site):
        if account.others([machine.tag.uid]):
            others.append(machine)
            continue
        try:
            done.append(_move(machine, name, site, tell))
        except WinlabError as error:
            problems.append(error)
    if others:
        problems.append(_foreign(name, others))
    if problems:
        raise together(problems)
    return Drained(name, drained=True, moved=tuple(done))


def _there(name: str, site: Site) -> list[Machine]:
    """All machines on the hypervisor.

    :raises HostError: it does not answer.
    """
    with site.hypervisors() as hosts:
        for silent in hosts.silent:
            if silent.is_maybe(name):
                raise silent.refusal("so that nothing can be moved away")
        return next(one.machines() for one in hosts if one.name == name)


def _move(machine: Machine, name: str, site: Site, tell: Listener) -> Moved:
    lab, node = machine.tag.lab, machine.tag.node
    held = recorded.read(site.folder(lab))
    where = move.planned(held, node).model_copy(update={"hypervisor": name})
    chosen = placement.elsewhere(held.spec, held.plan, where, planning.hypervisors(site, lab))
    return move.move(lab, node, chosen.host, site, tell)


def _foreign(name: str, machines: list[Machine]) -> ConflictError:
    labs = {machine.tag.lab: account.others([machine.tag.uid]) for machine in machines}
    return ConflictError(
        f"Labs of other users have nodes on '{name}': {', '.join(f'{lab} ({who})' for lab, who in labs.items())}.",
        why="The record of a lab, which says where its nodes are, belongs to the user who made it.",
        cure=f"Ask them to run 'winlab hypervisor drain {name}'. No new nodes are placed there.",
    )
