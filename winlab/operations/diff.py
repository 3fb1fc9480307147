"""What would change: compares an existing lab with a plan, using its record, libvirt and OVN. Guests aren't asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from winlab.adapters.vm import domains, pushed
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan.changes import Change, Changes, changes
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology
from winlab.design.spec.sizes import human
from winlab.errors import ConflictError
from winlab.operations import absent, recorded
from winlab.operations.recorded import Recorded
from winlab.site import Site


@dataclass(frozen=True)
class Pending:
    """A running machine that gets other sizes at its next start; the present and the next ones as text."""

    node: str
    before: str
    after: str


@dataclass(frozen=True)
class Difference:
    """What would change, what was changed and takes effect later, and whether a change was interrupted.

    ``pushed`` are nodes with programs that users replaced by their own builds. They stay, and count as no difference.
    """

    changes: tuple[Change, ...]
    pending: tuple[Pending, ...] = ()
    unfinished: bool = False
    pushed: tuple[tuple[str, Pushed], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes) or self.unfinished


@dataclass(frozen=True)
class Compared:
    """A lab compared with a plan: the record, the changes of the plan, and the lab's machines."""

    held: Recorded
    changes: Changes
    machines: tuple[Machine, ...]


def compare(plan: Plan, site: Site, hosts: Hypervisors, rebuild: str = "") -> Compared:
    """Compare a lab with a plan, by its record and its machines.

    :param rebuild: the name of a node that is made again.
    :raises NotFoundError: this account has no record of the lab.
    :raises ConflictError: its machines are not made from what is recorded, or it joined an external cluster.
    """
    held = recorded.read(site.folder(plan.lab))
    again = {
        rebuild,
        *recorded.again(site.folder(plan.lab)),
        *(one.name for one in absent.lost(held.wanted.plan, site, hosts)),
    }
    absent.require(plan.lab, site, hosts, but=again)
    if held.plan.joins:
        raise ConflictError(
            f"The lab '{plan.lab}' joined an external cluster.",
            why="What its nodes need is decided by that cluster: only 'winlab join' looks at it.",
            cure=f"Destroy the lab, which takes its nodes out of that cluster, and join again with another --workers; "
            f"or join more nodes as another lab: winlab join --lab {plan.lab}-2.",
        )
    compared = Compared(held, changes(held.plans, plan, again), tuple(hosts.machines(plan.lab)))
    known = {one.digest for one in (plan, *held.plans)}
    strange = [machine.tag.node for machine in compared.machines if machine.tag.plan not in known]
    if strange:
        raise ConflictError(
            f"The lab '{plan.lab}' is not made from what this account has recorded: {', '.join(strange)}.",
            why="Another account or another version of winlab made these nodes.",
            cure=f"Use the account that made it; or run 'winlab destroy --lab {plan.lab}' and create it again.",
        )
    return compared


def difference(plan: Plan, site: Site, rebuild: str = "") -> Difference:
    """What :func:`winlab.operations.apply.apply` would change.

    :param rebuild: as there.
    :raises WinlabError: as :func:`compare`; or libvirt or OVN does not answer.
    """
    with site.hypervisors() as hosts:
        compared = compare(plan, site, hosts, rebuild)
        there = {machine.tag.node for machine in compared.machines}
        changed = (*compared.changes.resized, *compared.changes.moved)
        standing = [node for node in plan.nodes if node.name in there and node not in changed]
        strayed = [row for node in standing for row in _strayed(node, hosts.on(node).conn)]
        pending = tuple(one for node in standing if (one := _pending(node, hosts.on(node).conn)) is not None)
        own = [(m.tag.node, one) for m in compared.machines for one in pushed.read(hosts.on(m).conn, m)]
    rows = [*compared.changes.every, *_missing(plan, compared, there), *strayed]
    if not rows:
        rows += _network(plan, site)
    return Difference(tuple(rows), pending, compared.held.applying is not None, tuple(own))


def _missing(plan: Plan, compared: Compared, there: set[str]) -> list[Change]:
    """The nodes of both plans that have no machine."""
    new = {node.name for node in compared.changes.added}
    return [
        Change("added", f"node {node.name}", why="it was planned, and has no machine")
        for node in plan.nodes
        if node.name not in there | new
    ]


def _network(plan: Plan, site: Site) -> list[Change]:
    with site.overlay() as northbound:
        if northbound.has(topology(plan)):
            return []
    return [Change("changed", "network", why="its rows in OVN are not those of the plan")]


def _strayed(node: NodePlan, conn: Connection) -> list[Change]:
    """Whether something other than winlab changed the sizes of a machine."""
    then, planned = domains.sizes(conn, node), (node.cpus, node.memory_mib)
    if then == planned:
        return []
    why = "its machine has other sizes than it was planned with"
    return [Change("changed", f"node {node.name}: sizes", _sizes(then), _sizes(planned), why, "next start")]


def _pending(node: NodePlan, conn: Connection) -> Pending | None:
    """What a running machine gets at its next start, if that is planned."""
    if not domains.is_running(conn, node):
        return None
    now, then = domains.sizes(conn, node, now=True), domains.sizes(conn, node)
    is_planned = then == (node.cpus, node.memory_mib)
    return Pending(node.name, _sizes(now), _sizes(then)) if is_planned and now != then else None


def _sizes(sizes: Sequence[int]) -> str:
    cpus, memory = sizes
    return f"{cpus} CPUs, {human(memory)}"
