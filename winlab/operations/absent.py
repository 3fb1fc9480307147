"""Hypervisors that do not answer: whether a lab needs one."""

from __future__ import annotations

from collections.abc import Sequence

from winlab.adapters.vm.hypervisor import Hypervisors, Silent
from winlab.design.plan import golden
from winlab.errors import HostError
from winlab.operations import recorded
from winlab.site import Site


def of_lab(lab: str, site: Site, hosts: Hypervisors) -> list[Silent]:
    """The hypervisors that do not answer and have machines of a lab, or may have some.

    The lab's record says where its machines are. Another account's lab may be on any of them.
    """
    if not hosts.silent:
        return []
    if plans := recorded.standing(site.folder(lab)):
        names = {node.hypervisor for plan in plans for node in plan.nodes} - {one.name for one in hosts}
        return [one for one in hosts.silent if any(map(one.is_maybe, names))]
    if lab.startswith(golden.LAB):
        return []  # golden images are made on the first hypervisor, which answers
    return list(hosts.silent)


def require(lab: str, site: Site, hosts: Hypervisors, nodes: Sequence[str] = ()) -> None:
    """Check that all hypervisors answer that have machines of a lab.

    :param nodes: only these are needed; none: all.
    :raises HostError: one does not.
    """
    if hosts.silent and nodes and {*nodes} <= {machine.tag.node for machine in hosts.machines(lab)}:
        return
    for one in of_lab(lab, site, hosts):
        raise refusal(one, lab, site)


def remains(silent: Silent, lab: str, site: Site) -> HostError:
    """The error which says that a lab was removed except for what is there."""
    error = refusal(silent, lab, site)
    cure = f"Run 'winlab destroy --lab {lab}' again when it answers."
    if silent.name:
        cure += f" If it never will, first run 'winlab hypervisor remove {silent.name} --force'."
    return HostError(error.what, why=f"The rest was removed. {error.why}", cure=cure, causes=error.causes)


def refusal(silent: Silent, lab: str, site: Site) -> HostError:
    """The error of a command that needs all machines of a lab."""
    known = bool(recorded.standing(site.folder(lab)))
    return silent.refusal(f"and the lab '{lab}' {'has' if known else 'may have'} machines there")
