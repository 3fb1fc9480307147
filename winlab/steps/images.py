"""Steps that copy images into the pool: from the cache, where they are built or downloaded if necessary."""

from __future__ import annotations

from pathlib import Path

from winlab.adapters.vm import domains
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.model import NodePlan, Plan, WindowsNode
from winlab.design.plan.stock import Stock
from winlab.engine.run import Run
from winlab.engine.step import Load, Step
from winlab.errors import ConflictError
from winlab.events import Progress
from winlab.steps.states import DRIVERS, IMAGE
from winlab.supply.images import cache, requirements
from winlab.supply.images import windows_media as own_media
from winlab.supply.media import windows_iso


def steps(run: Run) -> list[Step]:
    """One step for each base volume."""
    first: dict[str, NodePlan] = {}
    for node in run.plan.nodes:
        if node.windows is None or node.windows.golden is None:  # golden.py handles those
            first.setdefault(node.volume("base").name, node)
    return [_step(run, volume, node) for volume, node in first.items()]


def _step(run: Run, volume: str, node: NodePlan) -> Step:
    def work(progress: Progress) -> None:
        local = local_image(node, progress, run)
        if run.sources.check_images is not None:
            run.sources.check_images()
            _refuse_other_content(run, volume, local)
        if isinstance(node, WindowsNode):
            requirements.check_build(run.plan, node, requirements.check_medium(node, local))
        run.pool.upload_base(volume, local, progress.say)

    recipe = recipes.get(node.image)

    def done() -> bool:
        if run.sources.check_images is not None:
            return False  # what is locked is compared with what the nodes stand on
        return run.pool.is_complete(volume) or all(
            domains.find(run.conn, node.domain) is not None
            for node in run.plan.nodes
            if node.volume("base").name == volume
        )

    # a build computes; a download waits for the network, maybe for long
    load = Load.WAITS if recipe.build is None else Load.CORE
    return Step(IMAGE(of=volume), work, done, usual=float(_usual(recipe, node)), load=load)


def _refuse_other_content(run: Run, volume: str, local: Path) -> None:
    """Check that a base volume in the pool is the image that was compared with the lock file.

    :raises ConflictError: it was made from another build of it.
    """
    if run.pool.is_complete(volume) and not run.pool.holds(volume, local):
        raise ConflictError(
            f"The base volume '{volume}' in the pool is not the image that is locked.",
            why="It was uploaded from another build of the same recipe.",
            cure="Destroy the labs that stand on it, run 'winlab image prune', and then the same command.",
        )


def _usual(recipe: Recipe, node: NodePlan) -> int:
    if node.windows is not None and recipe.build is None:
        return 60 if node.windows.own_medium or own_media.find(recipe) else recipe.usual_seconds
    return 10 if cache.lookup(recipe) else recipe.usual_seconds


def drivers_steps(run: Run) -> list[Step]:
    """The step that fetches the virtio drivers where the plan takes them from the cache."""
    if not _takes_drivers(run.plan):
        return []
    recipe = recipes.get(own_media.DRIVERS)

    def work(progress: Progress) -> None:
        fetch_drivers(run.plan, progress, mirror=run.sources.mirror)

    done, usual = own_media.published().exists, float(recipe.usual_seconds)
    return [Step(DRIVERS(), work, done, usual=usual)]


def fetch_drivers(plan: Plan, progress: Progress, *, mirror: str | None = None) -> None:
    """Fetch the virtio drivers into the cache, where the plan takes them from there and they are not there yet.

    :raises TransferError: they can't be downloaded.
    """
    if _takes_drivers(plan):
        cache.obtain(recipes.get(own_media.DRIVERS), progress, mirror=mirror)


def _takes_drivers(plan: Plan) -> bool:
    """Whether a machine is installed with the published drivers; a clone has them in its golden image."""
    return any(own_media.takes_published(node.windows) for node in plan.windows_nodes() if node.has("media"))


def local_image(node: NodePlan, progress: Progress, run: Run) -> Path:
    """The node's image as a local file: the user's own medium, or the cached image, which is obtained if missing.

    :raises NotFoundError: it is Windows, and no medium was given; the message lists what to do.
    """
    return medium(node, run.stock, progress, mirror=run.sources.mirror, consent=run.sources.consent)


def medium(
    node: NodePlan, stock: Stock, progress: Progress, *, mirror: str | None = None, consent: bool = False
) -> Path:
    """See :func:`local_image`.

    :param consent: whether Microsoft's evaluation may be fetched.
    """
    if node.windows is not None and node.windows.own_medium:
        return stock.require(node.windows.medium)
    recipe = recipes.get(node.image)
    if recipe.build is not None or recipe.download is not None:
        return cache.obtain(recipe, progress, mirror=mirror if recipe.download else None).path
    if (image := own_media.find(recipe)) is not None:
        return image.path
    if not consent or not recipe.evaluations:
        requirements.require_source(recipe)
    return own_media.pull(recipe, recipe.evaluations[0], progress, mirror=mirror).path


def needs_key(node: NodePlan, stock: Stock) -> bool:
    """Whether the firmware asks for a key before it boots the node's medium, whatever winlab does."""
    if not isinstance(node, WindowsNode) or node.firmware != "uefi" or not node.has("media"):
        return False
    medium = own_media.at_hand(node, stock)
    return medium is not None and medium.exists() and windows_iso.must_have_a_key(medium)
