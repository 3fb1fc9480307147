"""Which hypervisor each node of a lab is on, and why. Pure: the same input, the same placement.

First the lab's hypervisors are chosen, then each node's among them (docs/placement.md). What a node needs is compared
with what no one uses now, as :mod:`winlab.operations.room` does again before machines start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.hosts import HostStock, gib
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.hosts import Group
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import LINUX_POOL
from winlab.design.spec.sizes import human
from winlab.errors import HostError, UsageError

RECORDED = "as recorded"
FOUND = "it is already there"
GONE = "the site no longer has it"
CHOSEN = "chosen with --on"
NEAR = "the lab's router is there, so that its traffic takes no tunnel"
# What a pool must have free: MiB, and the share of the nodes' disks, which are thin; as winlab.host.checks_machine says
LEAST_DISK, DISK_SHARE = 5120, 0.25
LISTED = 3  # names of other nodes in a reason
ADD = "'winlab hypervisor add NAME URI' adds one."


@dataclass(frozen=True)
class Placement:
    """A node's hypervisor, and why it is that one."""

    host: str
    why: str


def place(
    spec: Spec,
    nodes: Sequence[NodePlan],
    hosts: Sequence[HostStock],
    standing: Sequence[Plan] = (),
    again: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Placement]:
    """The placement of each node, by its name; empty if the site's only hypervisor was not asked.

    :param hosts: the site's hypervisors, the first one first; empty: there is one, and it is not asked.
    :param standing: the plans that the lab was made from, the oldest first: its nodes stay where they are. Without a
        record they stay where something of them was found.
    :param again: nodes that are made again, wherever they were: the hypervisor that each is to be on; empty: any.
    :raises UsageError: the spec names a hypervisor that the site does not have, or the lab is on more than it says.
    :raises HostError: a hypervisor that is needed is full or does not answer, or there are too few.
    """
    groups: dict[str, Group] = {"": spec.controllers, **{pool.name: pool for pool in spec.pools}}
    recorded = {node.name: node.hypervisor for plan in reversed(standing) for node in plan.nodes}
    found = {node: host.name for host in hosts for node in host.nodes}
    there, why = (recorded, RECORDED) if standing else (found, FOUND)
    given = {host.name: host for host in hosts}
    gone = {name: HostStock(name=name, trouble=GONE) for name in there.values() if name not in given and hosts}
    names = [*given, *gone] or [HYPERVISOR]
    if spec.hypervisors > len(names):
        raise _too_few(spec.hypervisors, names)
    for pool, group in groups.items():
        if group.count and group.hypervisor is not None and group.hypervisor not in names:
            raise _unknown(_field(spec, pool), group.hypervisor, names)
    for name in filter(None, again.values()):
        if name not in names:
            raise _unknown("--on", name, names)
    if not hosts:
        return {}
    board = _Board({host.name: _Room(host, number) for number, host in enumerate((given | gone).values())})
    placed: dict[str, Placement] = {}
    left: list[NodePlan] = []
    for node in nodes:
        group, host = groups[node.pool], there.get(node.name)
        if chosen := again.get(node.name):
            if group.hypervisor not in (None, chosen):
                raise _pinned_elsewhere(node.name, _field(spec, node.pool), group.hypervisor)
            is_there = found.get(node.name) == chosen  # a change that was interrupted has made it
            placed[node.name] = board.keep(chosen, node, FOUND) if is_there else board.pin(chosen, node, "--on")
        elif node.name in again and group.hypervisor is None:
            left.append(node)
        elif (
            host is not None
            and node.name not in again
            and group.hypervisor in (None, host)
            and not (group.apart and board.has(host, node))
        ):
            placed[node.name] = board.keep(host, node, why)
        elif group.hypervisor is not None:
            placed[node.name] = board.pin(group.hypervisor, node, _field(spec, node.pool))
        else:
            left.append(node)
    board.choose(spec.hypervisors, left, unmade=standing[0].lab if standing and not found else "")
    left.sort(key=lambda node: _order(node, groups[node.pool]))
    for number, node in enumerate(left):
        placed[node.name] = board.best(node, apart=groups[node.pool].apart, more=len(left) - number)
    return placed


def elsewhere(spec: Spec, plan: Plan, node: NodePlan, hosts: Sequence[HostStock]) -> Placement:
    """Where an existing node is best moved to.

    :param hosts: the site's hypervisors, the first one first.
    :raises HostError: no other hypervisor has room for it.
    """
    groups: dict[str, Group] = {"": spec.controllers, **{pool.name: pool for pool in spec.pools}}
    board = _Board({host.name: _Room(host, number) for number, host in enumerate(hosts)})
    for other in plan.nodes:
        if other.name != node.name and other.hypervisor in {host.name for host in hosts}:
            board.keep(other.hypervisor, other, RECORDED)
    board.choose_others(node.hypervisor)
    return board.best(node, apart=groups[node.pool].apart, more=len(hosts) + 1)


def place_copies(
    origin: Plan, count: int, hosts: Sequence[HostStock], shares: Mapping[str, float], on: str | None = None
) -> list[dict[str, Placement]]:
    """The placement of those nodes of copies that are not on the hypervisors of the snapshot's nodes, for each copy.

    :param origin: the plan of the lab that was saved.
    :param count: how many copies are made.
    :param hosts: the hypervisors that copies may be on.
    :param shares: how much of its memory each node needs beside the snapshot, by its name; elsewhere it needs all.
    :param on: the hypervisor that all nodes are to be on. None: each is where the snapshot is, if it fits there.
    :raises HostError: there is no room.
    """
    board = _Board({host.name: _Room(host, number) for number, host in enumerate(hosts)})
    return [
        {
            node.name: placed
            for node in origin.nodes
            if (placed := board.copy(node, int(shares[node.name] * node.memory_mib), on)) is not None
        }
        for _ in range(count)
    ]


def _field(spec: Spec, pool: str) -> str:
    """The path of the field that pins a pool; an empty *pool* is the controllers."""
    section = "linux_workers" if pool == LINUX_POOL and spec.linux_workers.count else f"workers.{pool}"
    return f"{section if pool else 'controllers'}.hypervisor"


def _order(node: NodePlan, group: Group) -> tuple[int, int]:
    """Controllers first, then what has the fewest choices, then what is large."""
    return 0 if not node.pool else 1 if group.apart else 2, -node.memory_mib


class _Room:
    """What a hypervisor has left while a lab is placed. ``nodes`` are the lab's nodes on it."""

    def __init__(self, host: HostStock, number: int) -> None:
        self.host, self._number = host, number
        self.nodes: list[NodePlan] = []
        self.pools: Counter[str] = Counter()
        self._memory = self._cpus = self._disk = 0

    def put(self, node: NodePlan, *, new: bool = True) -> None:
        """Place a node here; it needs something unless it is here already."""
        self.nodes.append(node)
        self.pools[node.pool] += 1
        if new:
            self._memory += node.memory_mib
            self._cpus += node.cpus
            self._disk += node.disk_mib

    def fits(self, *nodes: NodePlan) -> bool:
        """Whether the hypervisor answers and has what all of these need together."""
        disk = max(LEAST_DISK, int(DISK_SHARE * (self._disk + sum(node.disk_mib for node in nodes))))
        memory = self._memory + sum(node.memory_mib for node in nodes)
        return self._takes and memory <= self.host.free_mib and disk <= self.host.pool_free >> 20

    def holds(self, memory_mib: int) -> bool:
        """Whether the hypervisor answers and has so much memory."""
        return self._takes and self._memory + memory_mib <= self.host.free_mib

    @property
    def _takes(self) -> bool:
        return not (self.host.trouble or self.host.drained)

    @property
    def left_mib(self) -> int:
        return self.host.left_mib - self._memory

    def rank(self, bases: frozenset[str]) -> tuple[float, ...]:
        """By what a hypervisor is chosen, the smallest first; in the order of :meth:`reason`.

        Whole GiB are compared, so that equal hosts can differ by an image that one of them has.
        """
        cores = max(1, self.host.cores)
        return (
            -(self.left_mib // 1024),
            len(bases - self.host.bases),
            round((self.host.promised_cpus + self._cpus) / cores, 1),
            -(self.host.pool_free >> 30),
            self._number,
        )

    def reason(self, criterion: int, images: str) -> str:
        """Why the hypervisor was chosen, if *criterion* of :meth:`rank` decided."""
        cpus = self.host.promised_cpus + self._cpus
        return (
            f"most free memory: {gib(self.left_mib)} of {gib(self.host.memory_mib)} GiB",
            f"has the image {images} already",
            f"fewest CPUs for its cores: {cpus} on {self.host.cores}",
            f"most space in its pool: {self.host.pool_free >> 30} GiB",
            "the first of equal hypervisors",
        )[criterion]

    @property
    def said(self) -> str:
        """What it has, for a message."""
        return self.host.said + (f"; {gib(self._memory)} GiB for other nodes of the lab" if self._memory else "")


class _Board:
    """The hypervisors, and the lab's nodes on them."""

    def __init__(self, rooms: dict[str, _Room]) -> None:
        self._rooms = rooms
        self._chosen: list[_Room] = []
        self._why = ""  # the lab's only hypervisor was chosen

    def has(self, host: str, node: NodePlan) -> bool:
        """Whether another node of the node's pool is on a hypervisor."""
        return self._rooms[host].pools[node.pool] > 0

    def keep(self, host: str, node: NodePlan, why: str) -> Placement:
        """Leave a node where it is."""
        self._rooms[host].put(node, new=False)
        return Placement(host, why)

    def pin(self, host: str, node: NodePlan, field: str) -> Placement:
        """Place a node on the hypervisor that a field of the spec names.

        :raises HostError: it does not fit there.
        """
        room = self._rooms[host]
        if not room.fits(node):
            raise _full(f"'{node.name}' can't be on '{host}', as {field} says", [node], [room])
        room.put(node)
        return Placement(host, f"pinned by {field}")

    def copy(self, node: NodePlan, shared_mib: int, on: str | None) -> Placement | None:
        """Place the copy of a node; None: on the node's own hypervisor.

        :param shared_mib: the memory that it needs there.
        :raises HostError: it does not fit on *on*, or on none.
        """
        own = self._rooms.get(node.hypervisor)
        if own is not None and on in (None, node.hypervisor) and own.holds(shared_mib):
            own.put(node.model_copy(update={"memory_mib": shared_mib}))
            return None
        others = [room for room in self._rooms.values() if room is not own and on in (None, room.host.name)]
        fitting = sorted((room for room in others if room.fits(node)), key=lambda room: room.rank(frozenset()))
        if not fitting:
            what = f"'{node.name}' can't be on '{on}'" if on else f"No hypervisor has room for a copy of '{node.name}'"
            raise _full(what, [node], self._rooms.values())
        fitting[0].put(node)
        lacks = "takes no new nodes" if own is not None and own.host.drained else "has no room"
        full = f"'{node.hypervisor}', where its memory is, {lacks}; {_difference(fitting, frozenset(), '')}"
        return Placement(fitting[0].host.name, CHOSEN if on else full)

    def choose(self, count: int, nodes: Sequence[NodePlan], unmade: str = "") -> None:
        """Choose the lab's hypervisors: those in use, and the best of the others.

        :param nodes: what is still to be placed.
        :param unmade: the name of a lab that is recorded, and of which nothing was found.
        :raises UsageError: more are in use than *count*.
        :raises HostError: too few have room for one of the nodes.
        """
        used = [room for room in self._rooms.values() if room.nodes]
        if len(used) > count and (nodes or unmade):
            names = ", ".join(room.host.name for room in used)
            known, way = f"They are on {names}.", "move nodes first, with 'winlab move'"
            if unmade:
                known = f"They are recorded on {names}, and no hypervisor that answers has anything of the lab."
                way = f"run 'winlab destroy --lab {unmade}' first: it removes the record"
            raise UsageError(
                f"hypervisors: the lab's nodes are on {len(used)} hypervisors, and {count} are to be used.",
                why=known,
                cure=f"Use --set hypervisors={len(used)}, or {way}.",
            )
        self._chosen = used
        if not nodes or len(used) >= count:
            return
        smallest = min(nodes, key=lambda node: node.memory_mib)
        needed = nodes if count == 1 else [smallest]
        others = [room for room in self._rooms.values() if not room.nodes and room.fits(*needed)]
        if len(used) + len(others) < count:
            can = f"only {len(used) + len(others)} of them can" if used or others else "none can"
            raise _full(f"The lab is to use {count} of the site's hypervisors, and {can}", needed, self._rooms.values())
        bases = frozenset(_base(node) for node in nodes)
        others.sort(key=lambda room: room.rank(bases))
        if count == 1:
            first = [room for room in others if room.host.name == HYPERVISOR]
            self._why = NEAR if first else _difference(others, bases, ", ".join(sorted({one.image for one in nodes})))
            others = first or others
        self._chosen = [*used, *others[: count - len(used)]]

    def choose_others(self, host: str) -> None:
        """Choose all hypervisors but one, which a node is to leave."""
        self._chosen = [room for name, room in self._rooms.items() if name != host]

    def best(self, node: NodePlan, *, apart: bool, more: int) -> Placement:
        """Place a node on the best of the lab's hypervisors.

        :param apart: no other node of its pool may be there.
        :param more: how many nodes are still to be placed, with this one.
        :raises HostError: it fits on none.
        """
        fitting = [room for room in self._chosen if room.fits(node) and not (apart and room.pools[node.pool])]
        if not fitting:
            which = "other hypervisor" if apart else "hypervisor"
            raise _full(f"No {which} of the lab has room for '{node.name}'", [node], self._chosen)
        only = "the only one of the lab's hypervisors with room for it"
        unused = [room for room in self._chosen if not room.nodes]
        if more <= len(unused) and (empty := [room for room in fitting if not room.nodes]):
            if len(empty) < len(fitting):
                only = f"so that the lab uses {len(self._chosen)} hypervisors"
            fitting = empty
        words = []
        if not node.pool or apart:
            least = min(room.pools[node.pool] for room in fitting)
            fitting = [room for room in fitting if room.pools[node.pool] == least]
            words += _apart(node, self._chosen, least)
        bases = frozenset([_base(node)])
        fitting.sort(key=lambda room: room.rank(bases))
        if len(fitting) > 1:
            words.append(_difference(fitting, bases, node.image))
        elif not words:
            words.append(self._why or ("the lab's only hypervisor" if len(self._chosen) == 1 else only))
        if drained := [name for name, room in self._rooms.items() if room.host.drained]:
            words.append(f"no new nodes on {', '.join(drained)}, which {'is' if len(drained) == 1 else 'are'} drained")
        fitting[0].put(node)
        return Placement(fitting[0].host.name, "; ".join(words))


def _base(node: NodePlan) -> str:
    return node.volume("base").name


def _difference(rooms: Sequence[_Room], bases: frozenset[str], images: str) -> str:
    """Why the first one of these comes before the second."""
    if len(rooms) == 1:
        return "the only one with room"
    one, other = (room.rank(bases) for room in rooms[:2])
    return rooms[0].reason(next(number for number, value in enumerate(one) if value != other[number]), images)


def _apart(node: NodePlan, rooms: Iterable[_Room], least: int) -> list[str]:
    """The reason that the nodes of its pool are elsewhere, or that the fewest are here; nothing if there are none."""
    others = [one.name for room in rooms for one in room.nodes if one.pool == node.pool]
    if least:
        return [f"fewest controllers: {least}"]
    if not others:
        return []
    further = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    return [f"apart from {', '.join(others[:LISTED])}{further}"]


def _full(what: str, nodes: Sequence[NodePlan], rooms: Iterable[_Room]) -> HostError:
    memory, disk = sum(node.memory_mib for node in nodes), sum(node.disk_mib for node in nodes)
    least = max(LEAST_DISK, int(DISK_SHARE * disk))
    who = f"'{nodes[0].name}' needs" if len(nodes) == 1 else f"All {len(nodes)} nodes need"
    needs = f"{who} {human(memory)} of memory, and {gib(least)} GiB free in the pool"
    return HostError(
        f"{what}.",
        why="\n".join([f"{needs}.", *(f"{room.said}." for room in rooms)]),
        cure="Stop other labs or programs there, choose a smaller spec, or give nodes less with --set "
        f"workers.memory=.... 'winlab hypervisor list' shows all hypervisors. {ADD}",
    )


def _too_few(needed: int, names: Sequence[str]) -> HostError:
    return HostError(
        f"The lab is to use {needed} hypervisors, and the site has {len(names)}: {', '.join(names)}.",
        cure=f"{ADD} Or let the lab use fewer: the third number of its spec, or --set hypervisors={len(names)}.",
    )


def _pinned_elsewhere(node: str, field: str, host: str | None) -> UsageError:
    return UsageError(
        f"--on: the spec has '{node}' on '{host}'.",
        why=f"{field} requires it for all nodes of its pool.",
        cure=f"Leave out --on, or use '--on {host}'.",
    )


def _unknown(field: str, name: str, names: Sequence[str]) -> UsageError:
    return UsageError(
        f"{field}: the site has no hypervisor '{name}'.", why=f"It has {', '.join(names)}.", cure=f"Name one. {ADD}"
    )
