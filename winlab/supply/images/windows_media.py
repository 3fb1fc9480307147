"""Windows media in the cache: the user's own ISOs, and Microsoft's evaluation media."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from winlab import files, settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Download, Evaluation, Recipe
from winlab.design.plan.node_plan import WindowsNode, WindowsPlan
from winlab.design.plan.stock import Stock
from winlab.errors import TransferError, UsageError
from winlab.events import Progress
from winlab.supply import disk_format, download
from winlab.supply.images import cache
from winlab.supply.images.cache import CachedImage
from winlab.supply.media import drivers as driver_iso
from winlab.supply.media import inspection

DRIVERS = "virtio-win"  # the recipe of the virtio drivers
NOWHERE = "https://nowhere.invalid"  # for what comes only from a mirror or a local file


def key(sha256: str) -> str:
    """The cache's key of the medium with this digest."""
    return hashlib.sha256(json.dumps({"medium": sha256}).encode()).hexdigest()


def at_hand(node: WindowsNode, stock: Stock) -> Path | None:
    """The installation medium of a node, if it is on this host: the one that the spec names, or the cache's."""
    if node.windows.own_medium:
        return stock.paths.get(node.windows.medium)
    recipe = recipes.get(node.image)
    image = cache.lookup(recipe) or find(recipe)
    return None if image is None else image.path


def drivers() -> str | None:
    """The SHA-256 of the catalog's virtio drivers: the newest in the cache, otherwise the published ones."""
    recipe = recipes.get(DRIVERS)
    image = find(recipe)
    if image is not None:
        return image.sha256
    return recipe.download.sha256 if recipe.download else None


def drivers_file(windows: WindowsPlan, stock: Stock) -> Path | None:
    """Where the virtio drivers of a node are, or will be in the cache; None if it has none.

    :raises NotFoundError: the file that the spec names no longer exists.
    """
    if windows.drivers is None:
        return None
    if windows.own_drivers:
        return stock.require(windows.drivers)
    there = [one.path for one in cache.entries() if one.recipe.name == DRIVERS and one.sha256 == windows.drivers]
    return there[-1] if there else published()


def published() -> Path:
    """Where the published virtio drivers are in the cache, or will be."""
    recipe = recipes.get(DRIVERS)
    return settings.cache_dir() / "images" / cache.key(recipe) / f"image.{recipe.format}"


def takes_published(windows: WindowsPlan) -> bool:
    """Whether a machine is installed with the drivers that the catalog publishes, here or still to be fetched."""
    published = recipes.get(DRIVERS).download
    return (
        windows.drivers is not None and not windows.own_drivers and windows.drivers == (published and published.sha256)
    )


def find(recipe: Recipe) -> CachedImage | None:
    """The newest medium for *recipe* in the cache; None if there is none."""
    there = [
        image
        for image in cache.entries()
        if (image.recipe.name, image.recipe.format) == (recipe.name, recipe.format)  # golden images are qcow2
    ]
    return there[-1] if there else None


def add(recipe: Recipe, path: Path, sha256: str | None, progress: Progress) -> CachedImage:
    """Copy the user's ISO into the cache.

    :param sha256: its required digest, from its publisher.
    :raises UsageError: it is not what *recipe* needs, or has another digest.
    """
    if recipe.windows is not None:
        check_release(recipe, path)
    else:
        driver_iso.check(path)
    digest = files.sha256(path, progress)
    if sha256 is not None and digest != sha256.lower():
        raise UsageError(
            f"'{path}' is not the expected file.",
            why=f"Its SHA-256 is {digest}, not {sha256.lower()}.",
            cure="Download it again, and compare the SHA-256 with the publisher's.",
        )

    return _keep(recipe, Download(url=f"{NOWHERE}/{path.name}", sha256=digest), progress, None, path)


def check_release(recipe: Recipe, path: Path) -> None:
    """Check that Windows can be installed from a medium, and that it is the recipe's release.

    :raises UsageError: it can't, or is not.
    """
    report = inspection.inspect(path)
    report.require_usable()
    if recipe.windows not in report.releases:
        raise UsageError(
            f"'{path}' is Windows Server {report.release}, not {recipe.windows}.",
            cure=f"Add it as {' or '.join(f'windows-{one}' for one in report.releases)}.",
        )


def pull(
    recipe: Recipe, evaluation: Evaluation, progress: Progress, *, mirror: str | None = None, source: Path | None = None
) -> CachedImage:
    """Fetch an evaluation medium into the cache, or resume that. Its terms must have been accepted.

    :param mirror: a URL or folder that has the file by Microsoft's name for it, in place of Microsoft's own site.
    :param source: a local copy; it must have the same digest.
    :raises TransferError: it can't be fetched, or is not the file with the known digest.
    """
    # Microsoft's links have no file names
    url = f"{NOWHERE}/{evaluation.file}" if mirror else evaluation.url
    try:
        return _keep(recipe, evaluation.model_copy(update={"url": url}), progress, mirror, source)
    except TransferError as error:
        if not mirror and not source:
            error.cure = (
                f"Microsoft points its links at newer files now and then. Get the ISO yourself from the Evaluation "
                f"Center and give it with 'winlab image add {recipe.name} --iso PATH'; or name a mirror that has "
                f"'{evaluation.file}' with --mirror."
            )
        raise


def _keep(recipe: Recipe, wish: Download, progress: Progress, mirror: str | None, source: Path | None) -> CachedImage:
    assert wish.sha256 is not None
    name = key(wish.sha256)

    def fill(output: Path) -> tuple[str, str]:
        digest = download.fetch(
            wish, output, progress, part=cache.unfinished(name, f"{recipe.name}.iso"), mirror=mirror, source=source
        )
        disk_format.check(output, recipe.format, str(source or mirror or recipe.name))
        return digest, str(source or download.rewrite(wish.url, mirror))

    return cache.keep(recipe, name, fill, progress)
