"""Change an existing lab to match another plan: all checks come first, then the steps.

The record in the lab's folder has both plans until the last step is done. If the change is interrupted, the same
command resumes it, and a command with the former spec reverts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.left import Left
from winlab.adapters.vm import devices, domains
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.hypervisor import Hypervisors, Placed
from winlab.addons import record
from winlab.design import addon
from winlab.design.addon import Object
from winlab.design.plan import addons, required
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology
from winlab.design.system import SystemName
from winlab.errors import ClusterError, ConflictError, NotFoundError
from winlab.events import Listener, Note, ignore
from winlab.lab_folder import LabFolder
from winlab.operations import absent, destroy, diff, golden, making, protect, recorded, remains, resize
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.operations.diff import Compared
from winlab.operations.making import Until
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps.amendment import Amendment
from winlab.steps.sources import Origin
from winlab.supply.payload import PREFIX


def apply(
    proposal: Proposal,
    site: Site,
    tell: Listener,
    *,
    until: Until = "cluster",
    origin: Origin | None = None,
    consent: bool = False,
    restart: bool = False,
    force: bool = False,
    rebuild: str = "",
) -> None:
    """Change the lab to match the proposal, or resume such a change.

    Other parameters are those of :func:`winlab.operations.create.create`.

    :param restart: shut machines down whose sizes change, and start them again with the new ones.
    :param force: remove nodes even if their pods can't be moved, or the API server can't be asked.
    :param rebuild: the name of a worker that is removed and created again; on another hypervisor, if the plan says so.
        The old machine is remembered if its hypervisor does not answer (:mod:`winlab.operations.remains`).
    :raises NotFoundError: this account has no record of the lab; nothing was touched.
    :raises ConflictError: something can't be changed in an existing lab; nothing was touched.
    :raises ClusterError: the API server is needed, and does not answer; nothing was touched.
    :raises WinlabError: as :func:`winlab.operations.create.create`.
    """
    plan = proposal.plan

    def work(under: Underway) -> None:
        folder, hosts = under.folder, under.hypervisors
        compared = diff.compare(plan, site, hosts, rebuild)
        require_possible(compared)
        with site.overlay() as northbound:
            northbound.require_free(topology(plan))
        amended = amendment(plan, compared, hosts, folder, restart=restart, force=force, rebuild=rebuild)
        if until == "guests" and folder.has(folder.kubeconfig) and not amended.reachable:
            _require_cluster_untouched(plan.lab, amended)

        def begin() -> None:
            recorded.begin(folder, proposal, sorted(amended.rebuilt))
            _leave_old(plan, compared, site, hosts)

        made.make(under, amended, begin)
        if until != "cluster" and amended.reloaded and folder.has(folder.kubeconfig):
            # prepared nodes import no images by themselves: the record must say that this is still to be done
            text = f"New images are not in the nodes yet: 'winlab apply --lab {plan.lab}' finishes the change."
            under.tell(Note(lab=plan.lab, text=text))
        else:
            recorded.write(folder, proposal)

    with site.hypervisors() as hosts:  # before any other check
        compared = diff.compare(plan, site, hosts, rebuild)
        require_possible(compared)
        if rebuild or compared.changes.removed or compared.changes.moved:
            protect.refuse(plan.lab, hosts)
    _abandon_others(plan, site, tell)
    made = making.prepare("apply", proposal, site, tell, until=until, origin=origin, consent=consent)
    carry_out(Job(plan.lab, work, storage=True), site, tell)


def _leave_old(plan: Plan, compared: Compared, site: Site, hosts: Hypervisors) -> None:
    """Remember the old machines of nodes that are made again elsewhere because their hypervisors do not answer.

    :raises HostError: OVN's northbound database does not answer, or refuses.
    """
    for node in compared.changes.moved:
        before = {old.hypervisor for one in compared.held.plans for old in one.nodes if old.name == node.name}
        silent = {one.name for one in (*hosts.silent, *absent.removed(before, site, hosts))}
        for host in before & silent - {node.hypervisor}:
            remains.remember(site, Left(hypervisor=host, lab=plan.lab, nodes=(node.name,)))


def _require_cluster_untouched(lab: str, made: Amendment) -> None:
    """Check that nothing is removed from the cluster if its API server can't learn of it before the command ends.

    :raises ClusterError: something is.
    """
    if gone := [*sorted(set(made.removed) - made.beside), *sorted(made.uninstalled)]:
        raise ClusterError(
            f"The lab's API server does not answer, so that these can't be removed from the cluster: "
            f"{', '.join(gone)}.",
            cure=f"Leave out '--until guests': the cluster's steps start it. Or start it first: 'winlab start --lab "
            f"{lab}'.",
        )


def _abandon_others(plan: Plan, site: Site, tell: Listener) -> None:
    """Remove the golden images that an interrupted change of the lab began and that are no longer needed."""

    def remove(builder: str) -> None:
        tell(Note(lab=plan.lab, text=f"Removing '{builder}', a half-made golden image that is no longer needed."))
        destroy.destroy(builder, site, ignore)

    golden.abandon(plan.lab, site, remove, keep={builder.lab for builder in plan.builders})


def require_possible(compared: Compared) -> None:
    """Check that every change is possible in an existing lab.

    :raises ConflictError: some are not; all of them are named, with the reasons.
    """
    refused = compared.changes.refused
    if refused:
        raise ConflictError(
            f"The lab '{compared.held.plan.lab}' can't be changed this way while it stands.",
            why="\n".join(f"{row.what}: {_from_to(row.before, row.after)}{row.why}." for row in refused),
            cure="Leave out what can't be changed. Nothing was touched.",
        )


def amendment(
    plan: Plan,
    compared: Compared,
    hosts: Hypervisors,
    folder: LabFolder,
    *,
    restart: bool,
    force: bool,
    rebuild: str,
) -> Amendment:
    """How the lab is changed to match the plan.

    :raises NotFoundError: there is no node of the name *rebuild*, or this account has no credentials for the lab.
    :raises ClusterError: nodes must be drained, and the API server does not answer.
    """
    changed, there = compared.changes, {machine.tag.node: machine for machine in compared.machines}
    wanted = {node.name for node in plan.nodes}
    removed: dict[str, Placed] = {node.name: node for node in changed.removed}
    removed |= {name: machine for name, machine in there.items() if name not in wanted}
    begun = compared.held.applying
    rebuilt = {name for name in (begun.rebuilt if begun is not None else ()) if name in wanted}
    if rebuild and (begun is None or rebuild not in begun.cleared):  # otherwise this resumes with the new node
        rebuilt.add(rebuild)
    cleared = () if begun is None else begun.cleared
    moved = {node.name: node for node in changed.moved if node.name not in cleared}
    rebuilt |= {*moved}
    why = "It is a member of etcd and has the cluster's keys; with a single one the cluster would be lost."
    for name in rebuilt:
        if folder.has(folder.kubeconfig) or name not in moved:
            resize.no_controller(plan, name, f"'{name}' is a controller and can't be rebuilt.", why)
        # the old machine is where it was, if that hypervisor answers
        removed[name] = there[name] if name in moved and name in there else plan.node(name)
    if there:
        folder.credentials()  # without them nothing can be created again or queried
    kept = tuple(node for node in plan.nodes if node.name not in removed)
    beside = {name for name in removed if name in there and there[name].tag.role == "machine"}
    beside |= {node.name for one in compared.held.plans for node in one.beside if node.name in removed}
    asked = sorted(name for name in removed if name in there and there[name].state == "running" and name not in beside)
    reachable = folder.has(folder.kubeconfig) and folder.has(folder.kubectl) and Kubectl.of(folder).answers()
    if asked and not reachable and not force:
        _require_drained(plan.lab, asked, compared, hosts, folder)
    on = {name for name, machine in there.items() if machine.state not in (*domains.OFF, domains.CRASHED)}
    restarted = tuple(node for node in kept if restart and node.name in on and _outgrown(hosts.on(node).conn, node))
    systems = _with_new_images(compared.held.plans, plan)
    had = [{node.name for node in one.nodes} for one in compared.held.plans[1:]]
    back = {node.name for node in kept if node.is_member and not all(node.name in names for names in had)}
    return Amendment(
        removed=removed,
        beside=frozenset(beside),
        rebuilt=frozenset(rebuilt),
        is_rebuilt=partial(recorded.is_to_be_rebuilt, folder),
        clear=partial(recorded.old_is_gone, folder),
        kept=kept,
        restarted=restarted,
        reloaded=tuple(node for node in kept if node.is_member and node.os in systems and node.name in there),
        registered=tuple(node for node in kept if node in changed.registered or node.name in back),
        uninstalled=_uninstalled(compared.held.plans, plan),
        reachable=reachable,
        force=force,
    )


def _require_drained(lab: str, asked: Sequence[str], compared: Compared, hosts: Hypervisors, folder: LabFolder) -> None:
    """Check that nodes need no drain, because the API server can't be asked for one.

    :raises ClusterError: they need one: the lab has a cluster.
    """
    lost = next((path for path in (folder.kubeconfig, folder.kubectl) if not folder.has(path)), None)
    if lost is None:
        raise ClusterError(
            f"The lab's API server does not answer, so that nodes can't be drained: {', '.join(asked)}.",
            why="Their pods would be lost.",
            cure="Start the controllers: 'winlab status' shows them. With --force the nodes are removed all the same.",
            evidence=f"winlab kubectl --lab {lab} -- get --raw=/readyz",
        )
    drives = [
        path.name
        for machine in compared.machines
        for path in devices.inserted(hosts.on(machine).conn, machine).values()
    ]
    if folder.has(folder.kubeconfig) or any(name.startswith(PREFIX) for name in drives):
        raise ClusterError(
            f"Nodes can't be drained: {', '.join(asked)}.",
            why=f"The lab has a cluster, and '{lost}' is missing.",
            cure=f"Run 'winlab repair --lab {lab}'. With --force the nodes are removed all the same.",
        )


def _outgrown(conn: Connection, node: NodePlan) -> bool:
    """Whether a running or suspended machine's sizes differ from the planned ones."""
    return domains.sizes(conn, node, now=True) != (node.cpus, node.memory_mib)


def _with_new_images(standing: Sequence[Plan], plan: Plan) -> frozenset[SystemName]:
    """The systems whose nodes need images that the payload CD of one of the existing plans lacks."""
    had = [{payload.os: set(payload.images) for payload in required.payloads(one)} for one in standing]
    return frozenset(
        payload.os
        for payload in required.payloads(plan)
        if any(payload.os in one and not set(payload.images) <= one[payload.os] for one in had)
    )


def _uninstalled(standing: Iterable[Plan], plan: Plan) -> dict[str, list[Object]]:
    """The objects that the plan's add-ons no longer have, by add-on; without add-ons, their list is removed, too.

    :raises NotFoundError: an add-on to remove is not installed here, so its objects are unknown.
    """
    stay = [_key(item) for row in plan.addons for item in addons.manifests(row, plan)]
    gone: dict[str, list[Object]] = {}
    for old in standing:
        for row in old.addons:
            if row.name not in addon.registry():
                raise NotFoundError(
                    f"The add-on '{row.name}' of the lab is not installed here.",
                    cure="Install the package that provides it.",
                )
            objects = [item for item in addons.manifests(row, old) if _key(item) not in stay]
            if not plan.addons:
                objects.append(record.written(plan))
            known = [_key(item) for item in gone.get(row.name, [])]
            gone.setdefault(row.name, []).extend(item for item in objects if _key(item) not in known)
    return {name: objects for name, objects in gone.items() if objects}


def _key(item: Object) -> tuple[str, str, str, str]:
    """What identifies an object. A newer version of its kind is the same kind."""
    group = item["apiVersion"].rpartition("/")[0]
    return group, item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _from_to(before: str, after: str) -> str:
    return f"from {before} to {after}: " if before or after else ""
