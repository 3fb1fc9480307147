"""Steps that bring images into the pool: from the cache, where they are made or fetched if need be."""

from __future__ import annotations

from pathlib import Path

from winlab.adapters.vm import domains
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.model import NodePlan, Plan, WindowsNode
from winlab.design.plan.stock import Stock
from winlab.engine.engine import Step
from winlab.errors import ConflictError
from winlab.events import Progress
from winlab.steps import Context
from winlab.supply.images import cache, requirements
from winlab.supply.images import windows_media as own_media
from winlab.supply.media import windows_iso

DRIVERS = "image virtio-win"


def name(volume: str) -> str:
    """The name of the step that brings this base volume."""
    return f"image {volume.removeprefix('base-').rsplit('-', 1)[0]}"


def steps(context: Context) -> list[Step]:
    """One step for each base volume."""
    first: dict[str, NodePlan] = {}
    for node in context.plan.nodes:
        if node.windows is None or node.windows.golden is None:  # those are golden.py's
            first.setdefault(node.volume("base").name, node)
    return [_step(context, volume, node) for volume, node in first.items()]


def _step(context: Context, volume: str, node: NodePlan) -> Step:
    def run(progress: Progress) -> None:
        local = local_image(node, progress, context)
        if context.check_images is not None:
            context.check_images()
            _refuse_other_content(context, volume, local)
        if isinstance(node, WindowsNode):
            requirements.check_build(context.plan, node, requirements.check_medium(node, local))
        context.pool.upload_base(volume, local, progress.say)

    recipe = recipes.get(node.image)

    def done() -> bool:
        if context.check_images is not None:
            return False  # what is locked is compared with what the nodes stand on
        return context.pool.is_complete(volume) or all(
            domains.find(context.conn, node.domain) is not None
            for node in context.plan.nodes
            if node.volume("base").name == volume
        )

    return Step(name(volume), run, done, usual=float(_usual(recipe, node)))


def _refuse_other_content(context: Context, volume: str, local: Path) -> None:
    """See that a base volume in the pool is the image that was compared with the lock file.

    :raises ConflictError: it was made from another build of it.
    """
    if context.pool.is_complete(volume) and not context.pool.holds(volume, local):
        raise ConflictError(
            f"The base volume '{volume}' in the pool is not the image that is locked.",
            why="It was uploaded from another build of the same recipe.",
            cure="Destroy the labs that stand on it, run 'winlab image prune', and then the same command.",
        )


def _usual(recipe: Recipe, node: NodePlan) -> int:
    if node.windows is not None and recipe.build is None:
        return 60 if node.windows.own_medium or own_media.find(recipe) else recipe.usual_seconds
    return 10 if cache.lookup(recipe) else recipe.usual_seconds


def drivers_steps(context: Context) -> list[Step]:
    """The step that fetches the virtio drivers where the plan takes them from the cache."""
    if not _takes_drivers(context.plan):
        return []
    recipe = recipes.get(own_media.DRIVERS)

    def run(progress: Progress) -> None:
        fetch_drivers(context.plan, progress, mirror=context.mirror)

    return [Step(DRIVERS, run, own_media.published().exists, usual=float(recipe.usual_seconds))]


def fetch_drivers(plan: Plan, progress: Progress, *, mirror: str | None = None) -> None:
    """Fetch the virtio drivers into the cache, where the plan takes them from there and they are not there yet.

    :raises TransferError: they can't be had.
    """
    if _takes_drivers(plan):
        cache.obtain(recipes.get(own_media.DRIVERS), progress, mirror=mirror)


def _takes_drivers(plan: Plan) -> bool:
    """Whether a machine is installed with the published drivers; a clone has them in its golden image."""
    return any(own_media.takes_published(node.windows) for node in plan.windows_nodes() if node.has("media"))


def local_image(node: NodePlan, progress: Progress, context: Context) -> Path:
    """The node's image as a local file: the person's own medium, or the cache's, into which it comes if need be.

    :raises NotFoundError: it is Windows, and no medium was given; the message names the ways on.
    """
    return medium(node, context.stock, progress, mirror=context.mirror, consent=context.consent)


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
