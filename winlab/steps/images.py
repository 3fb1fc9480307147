"""Steps that bring images into the pool: from the cache, where they are made or fetched if need be."""

from __future__ import annotations

from pathlib import Path

from winlab import catalog
from winlab.catalog import Recipe
from winlab.engine import Step
from winlab.errors import NotFoundError, UsageError
from winlab.events import Progress
from winlab.media import cache
from winlab.plan import NodePlan
from winlab.steps import Context
from winlab.vm import domains


def name(volume: str) -> str:
    """The name of the step that brings this base volume."""
    return f"image {volume.removeprefix('base-').rsplit('-', 1)[0]}"


def steps(context: Context) -> list[Step]:
    """One step for each base volume."""
    first: dict[str, NodePlan] = {}
    for node in context.plan.nodes:
        first.setdefault(node.volume("base").name, node)
    return [_step(context, volume, node) for volume, node in first.items()]


def _step(context: Context, volume: str, node: NodePlan) -> Step:
    def run(progress: Progress) -> None:
        local = local_image(node, progress, context.mirror)
        if node.windows is not None:
            check_windows_media(node, local)
        context.pool.upload_base(volume, local, progress.say)

    recipe = catalog.get(node.image)

    def done() -> bool:
        return context.pool.is_complete(volume) or all(
            domains.find(context.conn, node.domain) is not None
            for node in context.plan.nodes
            if node.volume("base").name == volume
        )

    return Step(name(volume), run, done, usual=float(_usual(recipe, node)))


def _usual(recipe: Recipe, node: NodePlan) -> int:
    if node.windows is not None and node.windows.media is not None:
        return 60
    return 10 if cache.lookup(recipe) else recipe.usual_seconds


def local_image(node: NodePlan, progress: Progress, mirror: str | None) -> Path:
    """The node's image as a local file: the person's own medium, or the cache's.

    :raises NotFoundError: it is Windows, and no medium was given; the message names the ways on.
    """
    if node.windows is not None and node.windows.media is not None:
        return node.windows.media
    recipe = catalog.get(node.image)
    require_source(recipe)
    return cache.obtain(recipe, progress, mirror=mirror if recipe.download else None).path


def require_source(recipe: Recipe) -> None:
    """See that the image can be had without the person's own medium.

    :raises NotFoundError: it can't; the message names the ways on.
    """
    if recipe.download is None and recipe.build is None:
        raise NotFoundError(
            f"There are no media for '{recipe.name}'.",
            why="winlab brings no Windows of its own.",
            cure=f"Fetch Microsoft's evaluation with 'winlab image pull {recipe.name}'; or give an ISO of your own "
            "with --iso PATH; or try everything without Windows with --rehearse.",
        )


def check_windows_media(node: NodePlan, medium: Path) -> None:
    """See that Setup will find all answers on this medium: the image, its language, a product key or none.

    :raises UsageError: it won't; the message says what to change.
    """
    from winlab.media import windows_iso
    from winlab.render import windows

    assert node.windows is not None
    images = windows_iso.images(medium)
    chosen = next((image for image in images if image.name == node.windows.image_name), None)
    if chosen is None:
        raise UsageError(
            f"The medium '{medium}' has no image named '{node.windows.image_name}'.",
            why="It has: " + ", ".join(f"'{image.name}'" for image in images),
            cure="Choose with --os and --set workers.edition what the medium has, or take another ISO.",
        )
    # what follows would be asked by Setup on the screen, and nobody would answer
    if chosen.is_evaluation and node.windows.product_key is not None:
        raise UsageError(
            f"'{medium}' is an evaluation, which takes no product key.",
            cure="Leave workers.product_key out; or take volume licence media.",
        )
    if not chosen.is_evaluation and node.windows.product_key is None:
        raise UsageError(
            f"'{medium}' is no evaluation: Setup asks for a product key.",
            why=f"Its image '{chosen.name}' is of the edition {chosen.edition or 'unknown'}.",
            cure="Give one with --set workers.product_key=...; Microsoft publishes client setup keys for volume media.",
        )
    if chosen.language and chosen.language.lower() != windows.LANGUAGE.lower():
        raise UsageError(
            f"'{medium}' speaks {chosen.language}, and winlab answers Setup in {windows.LANGUAGE}.",
            cure="Take the English medium; locale and keyboard can be chosen with workers.locale and workers.keyboard.",
        )
    windows_iso.no_prompt_patch(medium)  # says now what would stop the overlay later
