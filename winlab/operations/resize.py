"""One node more or less: the recorded spec with another count, which ``apply`` then carries out.

The count is relative to what the lab was made from. The same command, run again after an interruption, therefore
gives the same spec.
"""

from __future__ import annotations

from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.spec.model import Spec
from winlab.design.spec.pools import LINUX_POOL
from winlab.errors import ConflictError, NotFoundError, UsageError
from winlab.near import did_you_mean
from winlab.operations import recorded
from winlab.operations.recorded import Recorded
from winlab.site import Site


def grown(lab: str, site: Site, pool: str, count: int) -> Spec:
    """The lab's spec with more nodes in a pool.

    :param pool: its name; empty: the first one.
    :param count: how many more.
    :raises NotFoundError: this account has no record of the lab, or the lab has no such pool.
    :raises ConflictError: another change of the lab was interrupted.
    :raises UsageError: an add-on decides how many nodes the pool has, or there is no room for more.
    """
    if count < 1:
        raise UsageError("The count must be at least 1.", cure="Use --count 1 or more, or use 'winlab node remove'.")
    held = recorded.read(site.folder(lab))
    spec = held.restored_spec()
    name = pool or spec.workers[0].name
    return _with(held, spec, name, _count(lab, spec, name) + count)


def shrunk(lab: str, site: Site, node: str) -> Spec:
    """The lab's spec without a node, which is the last one of its pool: nodes are named by their numbers.

    :raises NotFoundError: this account has no record of the lab, or the lab has no such node.
    :raises ConflictError: the node is a controller, or another change of the lab was interrupted.
    :raises UsageError: it is not the last one of its pool, or an add-on decides how many nodes the pool has.
    """
    held = recorded.read(site.folder(lab))
    spec = held.restored_spec()
    pool, count = _last(held.plan, node)
    return _with(held, spec, pool, count)


def _last(plan: Plan, name: str) -> tuple[str, int]:
    """The pool of a node that is the last one of its pool, and how many others the pool has."""
    why = "The API server's address and etcd's members are decided when the cluster is made."
    node = no_controller(plan, name, f"'{name}' is a controller and can't be removed.", why)
    members = [one.name for one in plan.nodes if one.pool == node.pool]
    if members[-1] != name:
        raise UsageError(
            f"'{name}' can't be removed: only the last node of its pool can, which is '{members[-1]}'.",
            why="A pool's nodes are named and addressed by their numbers, from 1 to its count.",
            cure=f"Run 'winlab node remove {members[-1]} --lab {plan.lab}'; or make '{name}' again with 'winlab node "
            f"rebuild {name} --lab {plan.lab}'.",
        )
    return node.pool, len(members) - 1


def no_controller(plan: Plan, name: str, refusal: str, why: str) -> NodePlan:
    """A node of a plan that is not a controller.

    :raises NotFoundError: there is no such node.
    :raises ConflictError: it is a controller; *refusal* and *why* say what can't be done to it.
    """
    others = {one.name: one for one in plan.nodes if one.role != "controller"}
    if name in others:
        return others[name]
    if any(one.name == name for one in plan.nodes):
        raise ConflictError(refusal, why=why, cure=f"Run 'winlab destroy --lab {plan.lab}' and create the lab again.")
    raise NotFoundError(
        f"The lab '{plan.lab}' has no node '{name}'.",
        cure=f"Besides controllers it has: {', '.join(others) or 'none'}.",
    )


def _count(lab: str, spec: Spec, pool: str) -> int:
    """How many nodes a pool of the spec has."""
    own = {one.name: one.count for one in spec.workers}
    if pool == LINUX_POOL and pool not in own:
        return spec.linux_workers.count
    if pool in own:
        return own[pool]
    if pool in (one.name for one in spec.pools):
        raise UsageError(
            f"An add-on decides how many nodes the pool '{pool}' has.",
            cure=f"Change its settings: winlab apply --lab {lab} --set addons.NAME.SETTING=VALUE.",
        )
    raise NotFoundError(
        f"The lab '{lab}' has no pool '{pool}'.",
        cure=f"{did_you_mean(pool, own)}It has: {', '.join(own)}, {LINUX_POOL}.",
    )


def _with(held: Recorded, spec: Spec, pool: str, count: int) -> Spec:
    """The spec with another count. What it leaves to winlab stays as it was decided for the lab.

    :raises ConflictError: a change into another spec was interrupted.
    """
    changes = [f"workers.{pool}.count={count}"]
    nodes = spec.controllers.count + sum(one.count for one in spec.pools) - _count(held.plan.lab, spec, pool) + count
    if spec.hypervisors > max(1, nodes):  # each of a lab's hypervisors has a node
        changes.append(f"hypervisors={max(1, nodes)}")
    wanted = pinned(held, spec).changed(changes)
    given = wanted.model_dump(exclude_unset=True)
    if held.applying is not None and given != held.applying.spec.model_dump(exclude_unset=True):
        raise recorded.unfinished(held.plan.lab)
    return wanted


def unchanged(lab: str, site: Site) -> Spec:
    """The lab's spec. What it leaves to winlab stays as it was decided for the lab.

    :raises NotFoundError: this account has no record of the lab.
    """
    held = recorded.read(site.folder(lab))
    return pinned(held, held.wanted.restored_spec())


def pinned(held: Recorded, spec: Spec) -> Spec:
    """A spec with what winlab decided for the lab, where it leaves that to winlab."""
    plan, changes = held.plan, list[str]()
    if plan.kubernetes is None:
        return spec
    if spec.kubernetes.version is None:
        changes.append(f"kubernetes.version='{plan.cluster.versions.kubernetes}'")
    if spec.network.cni is None:
        changes.append(f"network.cni={plan.cluster.profile}")
    return spec.changed(changes) if changes else spec
