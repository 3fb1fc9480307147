"""Windows media in the cache: ISOs that a person brought, and Microsoft's evaluation media."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from winlab import settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Download, Evaluation, Recipe
from winlab.errors import TransferError, UsageError
from winlab.events import Progress
from winlab.supply import digest, download
from winlab.supply.images import cache
from winlab.supply.images.cache import Image
from winlab.supply.media import drivers as driver_iso
from winlab.supply.media import inspection

DRIVERS = "virtio-win"  # the recipe of the virtio drivers
NOWHERE = "https://nowhere.invalid"  # for what comes from a mirror or a local file alone


def key(sha256: str) -> str:
    """The cache's key of the medium with this digest."""
    return hashlib.sha256(json.dumps({"medium": sha256}).encode()).hexdigest()


def chosen(recipe: Recipe) -> str | None:
    """The SHA-256 of the medium that *recipe*'s nodes are installed from: the cache's newest, else the evaluation that
    would be fetched; None if neither is known."""
    image = find(recipe)
    if image is not None:
        return image.sha256
    return recipe.evaluations[0].sha256 if recipe.evaluations else None


def at_hand(recipe: Recipe, given: Path | None) -> Path | None:
    """The medium that *recipe*'s nodes are installed from, if it is here: the person's (*given*), or the cache's."""
    if given is not None:
        return given
    image = cache.lookup(recipe) or find(recipe)
    return None if image is None else image.path


def drivers() -> Path:
    """The virtio drivers in the cache: those that came last, else where the published ones would be."""
    recipe = recipes.get(DRIVERS)
    image = find(recipe)
    return image.path if image is not None else published(recipe)


def published(recipe: Recipe) -> Path:
    """Where a published image is in the cache, or will be."""
    return settings.cache_dir() / "images" / cache.key(recipe) / f"image.{recipe.format}"


def is_published(drivers: Path | None) -> bool:
    """Whether drivers are the published ones in the cache, there or to come."""
    return drivers == published(recipes.get(DRIVERS))


def is_ours(path: Path) -> bool:
    """Whether a path is in winlab's cache of images, where something can still come to."""
    return path.is_relative_to(settings.cache_dir() / "images")


def find(recipe: Recipe) -> Image | None:
    """The medium for *recipe* that came last into the cache; None if there is none."""
    there = [
        image
        for image in cache.entries()
        if (image.recipe.name, image.recipe.format) == (recipe.name, recipe.format)  # golden images are qcow2
    ]
    return there[-1] if there else None


def add(recipe: Recipe, path: Path, sha256: str | None, progress: Progress) -> Image:
    """Take an ISO into the cache: a copy, so that the person's own stays what it is.

    :param sha256: what it must have, as whoever offers it says.
    :raises UsageError: it is not what *recipe* needs, or has another digest.
    """
    if recipe.windows is not None:
        _check_release(recipe, path)
    else:
        driver_iso.check(path)
    found = digest.sha256(path, progress)
    if sha256 is not None and found != sha256.lower():
        raise UsageError(
            f"'{path}' is not the file that you mean.",
            why=f"Its SHA-256 is {found}, not {sha256.lower()}.",
            cure="Get it again, and compare the SHA-256 with what whoever offers it says.",
        )

    return _keep(recipe, Download(url=f"{NOWHERE}/{path.name}", sha256=found), progress, None, path)


def _check_release(recipe: Recipe, path: Path) -> None:
    report = inspection.inspect(path)
    report.require_usable()
    if report.release != recipe.windows:
        raise UsageError(
            f"'{path}' is Windows Server {report.release}, not {recipe.windows}.",
            cure=f"Add it as windows-{report.release}.",
        )


def pull(
    recipe: Recipe, evaluation: Evaluation, progress: Progress, *, mirror: str | None = None, source: Path | None = None
) -> Image:
    """Fetch an evaluation medium into the cache; what broke off is carried on. Its terms must have been accepted.

    :param mirror: a URL or folder that has the file by Microsoft's name for it, in place of Microsoft's own site.
    :param source: a local copy; it must have the same digest.
    :raises TransferError: it can't be had, or is not the file with the known digest.
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


def _keep(recipe: Recipe, wish: Download, progress: Progress, mirror: str | None, source: Path | None) -> Image:
    assert wish.sha256 is not None
    name = key(wish.sha256)

    def fill(output: Path) -> tuple[str, str]:
        found = download.fetch(
            wish, output, progress, part=cache.unfinished(name, f"{recipe.name}.iso"), mirror=mirror, source=source
        )
        return found, str(source or download.rewrite(wish.url, mirror))

    return cache.keep(recipe, name, fill, progress)
