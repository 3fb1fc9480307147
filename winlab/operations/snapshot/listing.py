"""Which snapshots there are, and what each of them costs."""

from __future__ import annotations

from dataclasses import dataclass

from winlab import snapshots
from winlab.adapters.vm import disks
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Silent
from winlab.design.plan import volume_names
from winlab.design.plan.facts import HYPERVISOR
from winlab.errors import NotFoundError, WinlabError
from winlab.site import Site
from winlab.snapshots import Id, Snapshot


@dataclass(frozen=True)
class Part:
    """What a snapshot costs on one hypervisor.

    :param disk: bytes of the pool that are free again once it is deleted; None: the hypervisor does not answer.
    :param memory: bytes of the pool in which the machines' memory is; part of *disk*.
    """

    hypervisor: str
    disk: int | None
    memory: int | None


@dataclass(frozen=True)
class Listed:
    """A snapshot, and what it costs.

    :param record: None if it can't be used: its save did not end, another account made it, or its record is damaged.
    :param problem: why, if there is no record.
    :param disk: bytes of all pools that answer which are free again once it is deleted.
    :param memory: bytes of these pools in which the machines' memory is; part of *disk*.
    :param copies: the labs that run on its disks, and would keep them.
    :param parts: the same of each hypervisor that has a part of it.
    """

    id: Id
    record: Snapshot | None
    problem: str
    disk: int
    memory: int
    copies: tuple[str, ...]
    parts: tuple[Part, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """The hypervisors that have a part of it and do not answer."""
        return tuple(part.hypervisor for part in self.parts if part.disk is None)


def every(site: Site, lab: str | None = None) -> list[Listed]:
    """The snapshots of one lab, or of all, the oldest first; those that can't be used come last.

    :raises HostError: libvirt does not answer.
    """
    with site.storage() as hosts:
        rows = [_listed(one, hosts) for one in sorted(_ids(hosts)) if lab in (None, one.lab)]
    return sorted(rows, key=lambda row: (row.record is None, row.record.made.timestamp() if row.record else 0, row.id))


def _ids(hosts: Hypervisors) -> set[Id]:
    """Those that this account has, and those that have volumes."""
    found = set(snapshots.ids())
    for host in hosts:
        host.pool.refresh()
        found |= {Id(*row) for name in host.pool.names() if (row := volume_names.snapshot_of(name))}
    return found


def taken(lab: str, site: Site) -> set[str]:
    """The names that a new snapshot of a lab can't have; other accounts may have some.

    A snapshot that was not completed has none: the same command makes it.
    """
    with site.storage() as hosts:
        return {one.name for one in _ids(hosts) - {*snapshots.interrupted()} if one.lab == lab}


def one(which: Id, site: Site) -> Listed:
    """One snapshot.

    :raises NotFoundError: there is no such snapshot.
    """
    for row in every(site, which.lab):
        if row.id == which:
            return row
    snapshots.read(which)  # raises
    raise NotFoundError(f"There is no snapshot '{which}'.", cure="'winlab snapshot list' shows all.")


def newest(lab: str) -> Id:
    """The newest snapshot of a lab that a user saved: those that ``winlab clone`` made are of no use but for copies.

    :raises NotFoundError: it has none.
    """
    every = [snapshots.read(which) for which in snapshots.ids() if which.lab == lab]
    found = [one for one in every if not one.automatic]
    if not found:
        raise NotFoundError(
            f"The lab '{lab}' has no snapshot.",
            cure=f"'winlab snapshot save --lab {lab}' makes one; 'winlab snapshot list' shows all.",
        )
    return max(found, key=lambda snapshot: snapshot.made).id


def _listed(which: Id, hosts: Hypervisors) -> Listed:
    record, problem = None, ""
    try:
        record = snapshots.read(which)
    except NotFoundError:
        problem = "its save did not end, or another account made it"
    except WinlabError as error:
        problem = error.what
    parts = [_part(which, host) for host in hosts if host.pool.names(f"{which}.")]
    if record is not None:
        has = {part.hypervisor for part in parts}
        unreachable = unreached(record, hosts)
        for name in sorted(record.plan.hypervisors.keys() - has):
            if any(one.is_maybe(name) for one in unreachable):
                parts.append(Part(name, None, None))
            elif not problem:
                problem = "its volumes are gone" + ("" if name == HYPERVISOR else f" from '{name}'")
        record = None if problem else record
    disk, memory = (sum(filter(None, numbers)) for numbers in ([p.disk for p in parts], [p.memory for p in parts]))
    return Listed(which, record, problem, disk, memory, copies(which, hosts), tuple(parts))


def _part(which: Id, host: Hypervisor) -> Part:
    own = host.pool.names(f"{which}.")
    below = [path.name for name in own if (path := host.pool.backing(name)) is not None]
    memory = sum(host.pool.allocation(name) for name in own if name.endswith((".memory", ".save")))
    frozen = disks.unused(host, below, without=own)
    return Part(host.name, sum(host.pool.allocation(name) for name in (*own, *frozen)), memory)


def unreached(record: Snapshot, hosts: Hypervisors) -> list[Silent]:
    """The hypervisors that do not answer and have a part of a snapshot."""
    names = record.plan.hypervisors.keys() - {host.name for host in hosts}
    return [one for one in hosts.silent if any(map(one.is_maybe, names))]


def copies(which: Id, hosts: Hypervisors) -> tuple[str, ...]:
    """The labs whose disks are based on those that a snapshot froze, sorted; without its own lab."""
    found: set[str] = set()
    for host in hosts:
        backings = {name: base.name for name, base in host.pool.backings().items()}
        frozen = {base for name, base in backings.items() if name.startswith(f"{which}.")}
        found |= {lab for name, base in backings.items() if base in frozen and (lab := volume_names.lab_of(name))}
    return tuple(sorted(found - {which.lab}))
