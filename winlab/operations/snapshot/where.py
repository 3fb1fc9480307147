"""Where copies of a lab are made: beside the snapshot if there is room. Their machines share its memory only there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from winlab.adapters.vm import resources
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.design.plan import copied, placement
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.hosts import HostStock
from winlab.design.plan.model import Plan
from winlab.design.plan.placement import Placement
from winlab.errors import ConflictError, HostError, NotFoundError, UsageError
from winlab.host import memory_hook
from winlab.operations import recorded, room
from winlab.operations.snapshot import compatible
from winlab.operations.snapshot.required import COPYING
from winlab.site import Site
from winlab.snapshots import Emulator, Snapshot

SHARE = 0.5  # of its memory that a copy is expected to change; measured in the first minute: 9 to 16 percent
BALLOON = "it can't be shared; a machine that an earlier winlab made has a balloon"


def unshared(snapshot: Snapshot, plan: Plan, hosts: Hypervisors) -> dict[str, str]:
    """Why nodes of a copy can't share the memory of a snapshot, by their names; those that can are left out.

    :param plan: the copy's.
    :raises HostError: a hypervisor does not answer.
    """
    if not snapshot.memory:
        return {}
    homes = {node.name: node.hypervisor for node in snapshot.plan.nodes}
    hooks = {host.name: _hook(host) for host in hosts if host.name in homes.values()}
    found = {}
    for node in plan.nodes:
        if (home := homes[node.name]) != node.hypervisor:
            found[node.name] = f"the snapshot is on '{home}', and the copy on '{node.hypervisor}'"
        elif why := BALLOON if snapshot.nodes[node.name].sample is None else hooks[home]:
            found[node.name] = why
    return found


def _hook(host: Hypervisor) -> str:
    """Why libvirt's hook does not work on a hypervisor; empty if it does."""
    if (there := host.remote) is None:
        return memory_hook.trouble()
    why = memory_hook.trouble_on(there)
    return why and f"on '{host.name}', {why}"


def shares(plan: Plan, without: Mapping[str, str]) -> dict[str, float]:
    """How much of its memory each node takes; those in *without* can't share it."""
    return {node.name: 1.0 if node.name in without else SHARE for node in plan.nodes}


def elsewhere(
    snapshot: Snapshot, labs: Sequence[str], on: str | None, site: Site, hosts: Hypervisors
) -> dict[str, dict[str, Placement]]:
    """The placement of those nodes of new copies that are not where the snapshot is: by lab, then by node.

    Copies that were interrupted stay where they were begun.

    :param on: the hypervisor that the user chose for all of them.
    :raises UsageError: the site has none of this name, or tunnels to it don't take the lab's packets.
    :raises ConflictError: the memory can't be restored there.
    :raises HostError: there is no room for all of them, or a hypervisor that is needed does not answer.
    """
    origin = snapshot.plan
    for node in origin.nodes:
        hosts.on(node)
    new = [lab for lab in labs if not hosts.machines(lab)]
    if on is not None:
        require_chosen(on, origin, _emulators(snapshot), site, hosts)
        if new and snapshot.memory:
            share = _shares(snapshot, hosts)
            placement.place_copies(origin, len(new), _stock(snapshot, site, hosts), share, on)
        away = [node.name for node in origin.nodes if node.hypervisor != on]
        return dict.fromkeys(labs, dict.fromkeys(away, Placement(on, placement.CHOSEN)))
    compatible.require(snapshot, origin, hosts)
    found = {lab: copied.elsewhere_of(origin, plan) for lab in labs if (plan := _begun(lab, site)) is not None}
    found = {lab: found.get(lab, {}) for lab in labs}
    new = [lab for lab in new if not found[lab]]
    if new and snapshot.memory:
        share = _shares(snapshot, hosts)
        try:
            _require_open(origin, site)
            plan = origin.model_copy(update={"lab": new[0]})
            room.require_for(plan, hosts, shares=share, copies=len(new))
        except HostError:
            if len(fit := _fit(snapshot, site, hosts)) == 1:
                raise
            stock = [one for one in _stock(snapshot, site, hosts) if one.name in fit]
            found |= dict(zip(new, placement.place_copies(origin, len(new), stock, share), strict=True))
    return found


def _require_open(plan: Plan, site: Site) -> None:
    """Check that the hypervisors of a plan take new nodes.

    :raises HostError: one was drained.
    """
    if drained := site.drained() & {*plan.hypervisors}:
        raise HostError(
            f"No new nodes are placed on {', '.join(sorted(drained))}.",
            why="'winlab hypervisor drain' empties a hypervisor.",
            cure="Choose another one with --on, or let it take new nodes: 'winlab hypervisor drain NAME --undo'.",
        )


def _stock(snapshot: Snapshot, site: Site, hosts: Hypervisors) -> list[HostStock]:
    """What the hypervisors have for copies."""
    drained = site.drained()
    found = resources.of_all(hosts, snapshot.lab)
    return [one.model_copy(update={"drained": True}) if one.name in drained else one for one in found]


def _shares(snapshot: Snapshot, hosts: Hypervisors) -> dict[str, float]:
    """How much of its memory each node takes beside the snapshot."""
    return shares(snapshot.plan, unshared(snapshot, snapshot.plan, hosts))


def _begun(lab: str, site: Site) -> Plan | None:
    """The plan of a copy that was interrupted; None if there is none, or it was not yet recorded."""
    folder = site.folder(lab)
    try:
        return recorded.read(folder).plan if folder.has(folder.path / COPYING) else None
    except NotFoundError:
        return None


def _emulators(snapshot: Snapshot) -> dict[str, Emulator]:
    return {name: snapshot.emulator_of(name) for name in snapshot.nodes} if snapshot.memory else {}


def _fit(snapshot: Snapshot, site: Site, hosts: Hypervisors) -> set[str]:
    """The hypervisors that the snapshot is on, and others that copies of it can be on."""
    found = {*snapshot.plan.hypervisors}
    for host in hosts:
        if _fits_tunnels(snapshot.plan, host.name, site) and not _differences(_emulators(snapshot), host):
            found.add(host.name)
    return found


def _fits_tunnels(plan: Plan, host: str, site: Site) -> bool:
    """Whether the packets of a lab's guests fit into the tunnel that they take from a hypervisor to the router."""
    most = site.host_facts.tunnel_mtu
    return host == HYPERVISOR or most is None or plan.network.mtu <= most


def _differences(emulators: Mapping[str, Emulator], host: Hypervisor) -> str:
    """Why memory can't be restored on a hypervisor; empty if it can."""
    if not emulators:
        return ""
    here = compatible.emulator(host)
    return next((why for one in emulators.values() if (why := compatible.differences(one, here, host.name))), "")


def chosen(name: str, hosts: Hypervisors) -> Hypervisor:
    """The hypervisor of a name.

    :raises UsageError: the site has none of this name.
    :raises HostError: it does not answer.
    """
    for host in hosts:
        if host.name == name:
            return host
    for silent in hosts.silent:
        if silent.is_maybe(name):
            raise silent.refusal(f"and --on names '{name}'")
    raise UsageError(
        f"The site has no hypervisor '{name}'.",
        why=f"It has {', '.join(one.name for one in hosts)}.",
        cure="'winlab hypervisor list' shows all.",
    )


def require_chosen(
    name: str, plan: Plan, emulators: Mapping[str, Emulator], site: Site, hosts: Hypervisors
) -> Hypervisor:
    """The hypervisor of a name, after a check that all nodes of a plan can be restored there.

    :param emulators: what the memory can be restored with, by node; empty: there is no memory.
    :raises UsageError: the site has none of this name, or tunnels to it don't take the lab's packets.
    :raises ConflictError: the memory can't be restored there.
    :raises HostError: it does not answer.
    """
    host = chosen(name, hosts)
    if not _fits_tunnels(plan, name, site):
        most = site.host_facts.tunnel_mtu
        raise UsageError(
            f"Machines of the lab '{plan.lab}' can't be on '{name}'.",
            why=f"They send packets of up to {plan.network.mtu} bytes, and tunnels to '{name}' take {most}. The "
            "guests' memory has that size.",
            cure=f"Make a lab with --set network.mtu={most}, and save that.",
        )
    if why := _differences(emulators, host):
        raise ConflictError(
            f"The memory of the lab '{plan.lab}' can't be restored on '{name}'.",
            why=why,
            cure="Choose a hypervisor like the one that saved it; 'winlab doctor' compares them.",
        )
    return host


def require_possible(name: str, lab: str, site: Site, hosts: Hypervisors) -> None:
    """Check that copies of a lab can be made on a hypervisor, before the lab is saved for them.

    :raises UsageError: the site has none of this name, or tunnels to it don't take the lab's packets.
    :raises ConflictError: the memory can't be restored there.
    :raises HostError: it does not answer, or one that the lab is on.
    """
    plan = recorded.read(site.folder(lab)).plan
    here = {node.name: compatible.emulator(hosts.on(node)) for node in plan.nodes}
    require_chosen(name, plan, here, site, hosts)
