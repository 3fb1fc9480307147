"""The media that Windows is installed from, and the virtio drivers for it."""

from __future__ import annotations

from pathlib import Path

from winlab.design.catalog import recipes
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps.states import DRIVERS
from winlab.supply.images import cache, requirements, windows_media


def of(run: Run, node: WindowsNode, progress: Progress) -> Path:
    """The node's medium as a local file. See :func:`obtain`."""
    return obtain(node, run.stock, progress, mirror=run.sources.mirror, consent=run.sources.consent)


def obtain(
    node: WindowsNode, stock: Stock, progress: Progress, *, mirror: str | None = None, consent: bool = False
) -> Path:
    """The node's medium as a local file: the user's own, or the cache's, which is obtained if it is missing.

    :param consent: whether Microsoft's evaluation may be downloaded.
    :raises NotFoundError: no medium was given; the message lists what to do.
    """
    if node.windows.own_medium:
        return stock.require(node.windows.medium)
    recipe = recipes.get(node.image)
    if recipe.build is not None or recipe.download is not None:
        return cache.obtain(recipe, progress, mirror=mirror if recipe.download else None).path
    if (image := windows_media.find(recipe)) is not None:
        return image.path
    if not consent or not recipe.evaluations:
        requirements.require_source(recipe)
    return windows_media.pull(recipe, recipe.evaluations[0], progress, mirror=mirror).path


def seconds(node: WindowsNode) -> float:
    """How long obtaining and uploading the medium usually takes, in seconds."""
    recipe = recipes.get(node.image)
    if recipe.build is not None:
        return 10.0 if cache.lookup(recipe) else float(recipe.usual_seconds)
    return 60.0 if node.windows.own_medium or windows_media.find(recipe) else float(recipe.usual_seconds)


def drivers_steps(run: Run) -> list[Step]:
    """The step that fetches the virtio drivers, if the plan takes them from the cache."""
    if not _takes_drivers(run.plan):
        return []
    recipe = recipes.get(windows_media.DRIVERS)

    def work(progress: Progress) -> None:
        fetch_drivers(run.plan, progress, mirror=run.sources.mirror)

    done, usual = windows_media.published().exists, float(recipe.usual_seconds)
    return [Step(DRIVERS(), work, done, usual=usual)]


def fetch_drivers(plan: Plan, progress: Progress, *, mirror: str | None = None) -> None:
    """Fetch the virtio drivers into the cache, if the plan takes them from there and they are missing.

    :raises TransferError: they can't be downloaded.
    """
    if _takes_drivers(plan):
        cache.obtain(recipes.get(windows_media.DRIVERS), progress, mirror=mirror)


def _takes_drivers(plan: Plan) -> bool:
    """Whether a machine is installed with the published drivers; a clone has them in its golden image."""
    return any(windows_media.takes_published(node.windows) for node in plan.windows_nodes() if node.has("media"))
