"""Hypervisors that do not answer: whether a lab needs one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from winlab.adapters.left import Left
from winlab.adapters.vm.hypervisor import Hypervisors, Silent
from winlab.design.plan import lab_name
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.errors import HostError, WinlabError
from winlab.events import Listener, Note
from winlab.operations import forget, move_note, recorded, remains
from winlab.site import Site


def of_lab(lab: str, site: Site, hosts: Hypervisors, but: Collection[str] = ()) -> list[Silent]:
    """The hypervisors that do not answer and have machines of a lab, or may have some.

    :param but: nodes that don't count.
    The lab's record says where its machines are. Another account's lab may be on any of them.
    """
    folder = site.folder(lab)
    if plans := recorded.standing(folder):
        needed = {node.hypervisor for plan in plans for node in plan.nodes if node.name not in but}
        with suppress(WinlabError):  # one that is damaged; commands that need it report that
            if (note := move_note.read(folder)) is not None:
                needed |= {note.source, note.target}
        names = needed - {one.name for one in hosts}
        return [*(one for one in hosts.silent if any(map(one.is_maybe, names))), *removed(names, site, hosts)]
    if lab.startswith(lab_name.GOLDEN):
        return []  # golden images are made on the first hypervisor, which answers
    return list(hosts.silent)


def lost(plan: Plan, site: Site, hosts: Hypervisors) -> list[NodePlan]:
    """The nodes of a plan whose hypervisors were forgotten.

    :raises HostError: OVN's northbound database does not answer.
    """
    gone = _gone(plan.hypervisors, site, hosts)
    forgotten = gone and gone & forget.names(site)
    return [node for node in plan.nodes if node.hypervisor in forgotten]


def removed(names: Iterable[str], site: Site, hosts: Hypervisors) -> list[Silent]:
    """Those of the hypervisors that are not in the site's list, but were not forgotten: their machines may run.

    :raises HostError: OVN's northbound database does not answer.
    """
    gone = _gone(names, site, hosts)
    return [Silent(name, _removed(name)) for name in sorted(gone and gone - forget.names(site))]


def _gone(names: Iterable[str], site: Site, hosts: Hypervisors) -> set[str]:
    """Those of the hypervisors that are not in the site's list."""
    gone = {*names} - {one.name for one in hosts}
    if not gone or not site.host_facts.southbound:
        return set()  # it never had others: its facts were lost, or the lab is of another site
    return {name for name in gone if not any(one.is_maybe(name) for one in hosts.silent)}


def _removed(name: str) -> HostError:
    return HostError(
        "It was removed from the list of hypervisors, and its machines may still run.",
        cure=f"Add it again with 'winlab hypervisor add {name}'. If it is lost forever: sudo winlab hypervisor forget "
        f"{name}",
    )


def require(lab: str, site: Site, hosts: Hypervisors, nodes: Sequence[str] = (), but: Collection[str] = ()) -> None:
    """Check that all hypervisors answer that have machines of a lab.

    :param nodes: only these are needed; none: all.
    :param but: these are not needed.
    :raises HostError: one does not.
    """
    absent = of_lab(lab, site, hosts, but)
    if absent and not (nodes and {*nodes} <= {machine.tag.node for machine in hosts.machines(lab)}):
        raise refusal(absent[0], lab, site)


def leave(lab: str, site: Site, hosts: Hypervisors, tell: Listener) -> list[WinlabError]:
    """Remember what a destroyed lab has on hypervisors that do not answer; returns why that could not be remembered."""
    problems: list[WinlabError] = []
    nodes = {node.name: node.hypervisor for plan in recorded.standing(site.folder(lab)) for node in plan.nodes}
    for one in of_lab(lab, site, hosts):
        there = tuple(node for node, host in nodes.items() if host == one.name)
        left = Left(hypervisor=one.name, lab=lab, nodes=there, whole=True)
        try:
            if not one.name:
                raise _remains(one, lab, site)
            remains.remember(site, left)
            tell(Note(lab=lab, text=f"{left} {one}"))
        except WinlabError as error:
            problems.append(error)
    return problems


def _remains(silent: Silent, lab: str, site: Site) -> HostError:
    """The error which says that a lab was removed except for what is on hypervisors that are not known."""
    error = refusal(silent, lab, site)
    cure = f"Run 'winlab destroy --lab {lab}' again when OVN answers."
    return HostError(error.what, why=f"The rest was removed. {error.why}", cure=cure, causes=error.causes)


def refusal(silent: Silent, lab: str, site: Site) -> HostError:
    """The error of a command that needs all machines of a lab."""
    known = bool(recorded.standing(site.folder(lab)))
    return silent.refusal(f"and the lab '{lab}' {'has' if known else 'may have'} machines there")
