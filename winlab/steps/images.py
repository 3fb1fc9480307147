"""Steps that copy images into the pool: from the cache, where they are built or downloaded if necessary."""

from __future__ import annotations

from pathlib import Path

from winlab.adapters.vm import domains
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.catalog import recipes
from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError
from winlab.events import Progress
from winlab.steps import systems
from winlab.steps.cut_off import is_cut_off
from winlab.steps.states import IMAGE
from winlab.supply.images import cache


def steps(run: Run) -> list[Step]:
    """One step for each base volume on each hypervisor, except golden images (golden.py)."""
    clones = run.plan.clones()
    first: dict[State, NodePlan] = {}
    for node in run.plan.nodes:
        if node not in clones:
            first.setdefault(IMAGE(of=node.volume("base").name, host=node.hypervisor), node)
    return [_step(run, state, node) for state, node in first.items()]


def _step(run: Run, state: State, node: NodePlan) -> Step:
    own, host, volume = systems.of(run, node), run.on(node), state.of

    def work(progress: Progress) -> None:
        local = own.image(progress)
        if run.sources.check_images is not None:
            run.sources.check_images()
            refuse_other_content(host.pool, volume, local)
        own.check_image(local)
        host.pool.upload_base(volume, local, progress.say, cache.comparing(local))

    def done() -> bool:
        if run.sources.check_images is not None:
            return False  # the locked images must be compared with those that the nodes are based on
        return host.pool.is_complete(volume) or all(
            domains.find(host.conn, other) is not None and not is_cut_off(run, other)
            for other in run.plan.nodes
            if other.volume("base").name == volume and other.hypervisor == host.name
        )

    # a build uses the processors; a download waits for the network, perhaps for long
    load = Load.WAITS if recipes.get(node.image).build is None else Load.CORE
    return Step(state, work, done, usual=own.image_seconds(), load=load)


def refuse_other_content(pool: StoragePool, volume: str, local: Path) -> None:
    """Check that a base volume in the pool is the image that was compared with the lock file.

    :raises ConflictError: it was made from another build of the image.
    """
    if pool.is_complete(volume) and not pool.holds(volume, local):
        raise ConflictError(
            f"The base volume '{volume}' in the pool is not the image that is locked.",
            why="It was uploaded from another build of the same recipe.",
            cure="Remove the labs and snapshots that are based on it, run 'winlab image prune', then the same command.",
        )
