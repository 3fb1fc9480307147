"""``winlab host attach`` and ``winlab host route``: connect labs with external clusters' networks, or undo that."""

from __future__ import annotations

from winlab.design.plan.facts import HostFacts, Way
from winlab.errors import HostError, UsageError
from winlab.events import Progress
from winlab.host import attachment, facts, firewall, routes
from winlab.host.changes import Record, alone
from winlab.host.setup import require_root


def attach(progress: Progress, bridge: str, *, undo: bool = False) -> None:
    """Let labs be attached to a Linux bridge of this host, or end that. Safe to repeat.

    :raises AccessError: not run by root.
    :raises NotFoundError: there is no such bridge.
    :raises HostError: this host was not set up.
    :raises UsageError: the labs' network is another host's.
    """
    require_root("winlab host attach")
    with alone(progress):
        known, record = _known(), Record()
        others = tuple(one for one in known.attached if one != bridge)
        if undo:
            attachment.undo(bridge, record, progress)
            _write(known, attached=others)
            return
        attachment.require(bridge)
        _write(known, attached=(*others, bridge))
        attachment.ensure(known.model_copy(update={"attached": (bridge,)}), record, progress)


def route(progress: Progress, lab: str, way: Way | None) -> None:
    """Carry packets between a lab's network and its cluster's through this host, or end that. Safe to repeat.

    :param lab: the lab's inner network; *way*: its router, and the cluster's networks; None: no longer.
    :raises AccessError: not run by root.
    :raises UsageError: an address is not usable, or the labs' network is another host's.
    :raises NotFoundError: there is no such route to remove.
    :raises ConflictError: this host reaches something else by an overlapping network.
    :raises HostError: this host was not set up.
    """
    require_root("winlab host route")
    with alone(progress):
        known = _known()
        others = {network: one for network, one in known.ways.items() if network != lab}
        if way is None:
            gone = {lab: routes.require(lab, known)}
            routes.remove(lab)
        else:
            routes.check(lab, way, known)
            gone = {lab: known.ways[lab]} if lab in known.ways else {}
        firewall.withdraw_ways(gone)
        wanted = _write(known, ways=others if way is None else {**others, lab: way})
        routes.ensure(wanted, progress)
        firewall.ensure_forwarding(wanted, Record(), progress)


def _known() -> HostFacts:
    known = facts.read_facts()
    if not known.recorded:
        raise HostError("This host was not set up.", cure="Run 'sudo winlab host setup'.")
    if known.joined:
        raise UsageError(f"The labs' network is on another host, {known.joined}.", cure="Run the same command there.")
    return known


def _write(known: HostFacts, **changes: object) -> HostFacts:
    made = known.model_copy(update=changes)
    facts.write_facts(made)
    return made
