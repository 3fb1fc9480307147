"""Bring images into the cache: build or download them, pull Microsoft's media, add the user's own."""

from __future__ import annotations

import re
from pathlib import Path

from winlab.design.catalog import recipes as catalog
from winlab.design.catalog.recipes import Recipe
from winlab.engine.step import Step
from winlab.errors import NotFoundError, UsageError, for_each
from winlab.events import Listener, Progress
from winlab.operations import consent
from winlab.operations.carry_out import one_step, run_steps
from winlab.site import Site
from winlab.steps.states import WORK
from winlab.supply.images import cache, windows_media
from winlab.supply.images.cache import CachedImage
from winlab.supply.images.library import Item
from winlab.supply.images.requirements import require_source


def build(name: str, tell: Listener, *, mirror: str | None = None, source: Path | None = None) -> CachedImage:
    """Build or download an image unless it is cached; for Windows, the installation medium.

    :param mirror: where a download comes from, instead of its own site.
    :param source: a local file to use instead.
    :raises NotFoundError: there is no such image, or no source for it.
    """
    recipe = catalog.get(name)
    require_source(recipe)

    def obtain(progress: Progress) -> None:
        cache.obtain(recipe, progress, mirror=mirror if recipe.download else None, source=source)

    done, usual = lambda: cache.lookup(recipe) is not None, float(recipe.usual_seconds)
    run_steps([Step(WORK(of=f"image {name}"), obtain, done, usual=usual)], tell)
    image = cache.lookup(recipe)
    assert image is not None
    return image


def verify(items: list[Item], tell: Listener) -> list[Item]:
    """Read images whole, and compare them with their digests.

    :raises TransferError: one has changed; with several, all of them are named.
    """

    def read(progress: Progress) -> None:
        for_each(items, lambda item: cache.verify(item.image, progress))

    one_step("verify", read, tell, usual=30)
    return items


def is_sealed(name: str) -> bool:
    """Whether nodes of an image are clones of a golden image, which holds for Windows.

    :raises NotFoundError: there is no such image.
    """
    return catalog.get(name).windows is not None


def add(name: str, iso: Path, tell: Listener, *, sha256: str | None = None) -> CachedImage:
    """Copy the user's own ISO, of Windows or of the virtio drivers, into the cache.

    :param sha256: the expected digest.
    :raises UsageError: it is not what the image needs, or has a different digest.
    """
    recipe = _brought(name)
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise UsageError(f"'{sha256}' is not a SHA-256.", cure="A SHA-256 has 64 hexadecimal digits.")
    return one_step(f"image {name}", lambda progress: windows_media.add(recipe, iso, sha256, progress), tell, usual=60)


def needs_consent(name: str) -> bool:
    """Whether :func:`pull` downloads something whose terms must be accepted.

    :raises WinlabError: it can't download anything for this image.
    """
    return not _pullable(name).download


def terms(name: str, site: Site) -> str | None:
    """The terms that the user must accept before :func:`pull`; None: there is nothing to accept.

    :raises WinlabError: as :func:`needs_consent`.
    """
    return consent.TERMS if needs_consent(name) and not consent.is_given(site) else None


def pull(
    name: str,
    site: Site,
    tell: Listener,
    *,
    accept_eula: bool = False,
    mirror: str | None = None,
    source: Path | None = None,
) -> CachedImage:
    """Download Microsoft's evaluation medium or the virtio drivers into the cache. Resumes an interrupted download.

    :param accept_eula: the user has read and accepted Microsoft's terms for evaluations.
    :param mirror: a URL or folder that has the file, used instead of its own site.
    :param source: a local copy to use instead.
    :raises UsageError: the terms were not accepted, or the image needs no medium.
    :raises NotFoundError: no evaluation is known.
    :raises TransferError: it can't be obtained, or does not have the known digest.
    """
    recipe = _pullable(name)
    if needs_consent(name):
        consent.require(site, accepted=accept_eula)

    def fetch(progress: Progress) -> CachedImage:
        if recipe.download is not None:
            return cache.obtain(recipe, progress, mirror=mirror, source=source)
        return windows_media.pull(recipe, recipe.evaluations[0], progress, mirror=mirror, source=source)

    return one_step(f"image {name}", fetch, tell, usual=recipe.usual_seconds)


def _pullable(name: str) -> Recipe:
    recipe = _brought(name)
    if recipe.download is None and not recipe.evaluations:
        raise NotFoundError(f"No evaluation of '{name}' is known.", cure="Add your own ISO with 'image add'.")
    return recipe


def _brought(name: str) -> Recipe:
    """The recipe for something that comes as an ISO: Windows' installation media, the virtio drivers."""
    recipe = catalog.get(name)
    if not recipe.is_iso:
        names = [one for one in catalog.names() if catalog.get(one).is_iso]
        raise UsageError(
            f"'{name}' needs no medium.",
            cure=f"Run 'winlab image build {name}'. Media are for {', '.join(names)}.",
        )
    return recipe
