"""The cache of images: everything that is slow to fetch or make is kept, once per set of inputs.

::

    <cache>/                        settings.cache_dir(); a :class:`winlab.supply.store.Store`
    ├── images/<key>/               a finished image
    │   ├── image.qcow2             (or image.raw, image.iso)
    │   └── manifest.json           recipe, digest, size, when and how long it took
    ├── downloads/
    ├── staging/<key>/              where an image is being made
    └── locks/

The key is a digest of everything that decides the image's bytes: format, and either the published digest or the build's
options and its builder's fingerprint. Names, summaries and mirrors don't count.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from winlab import documents, files, settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import ConflictError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import disk_format, download, store
from winlab.supply.store import Store


@dataclass(frozen=True)
class CachedImage:
    """An image in the cache: what it was made from, its key, the file, and that file's SHA-256 and size in bytes."""

    recipe: Recipe
    key: str
    path: Path
    sha256: str
    size: int


def key(recipe: Recipe) -> str:
    """The 64 hex digits that name *recipe*'s image.

    :raises UsageError: the recipe names neither a download nor a builder (Windows media are the user's own).
    :raises HostError: its builder is not installed.
    """
    inputs: dict[str, object] = {"format": recipe.format}
    if recipe.download is not None:
        inputs["digest"] = recipe.download.sha256 or recipe.download.sha512
    elif recipe.build is not None:
        inputs["build"] = recipe.build.model_dump(mode="json", exclude={"package"})
        inputs["fingerprint"] = recipes.builder(recipe).fingerprint(recipe)
    else:
        raise UsageError(
            f"The image '{recipe.name}' can't be obtained automatically.",
            why="It is made from installation media that only you can provide.",
            cure="Give the path of the media (--iso PATH).",
        )
    return store.key(inputs)


def lookup(recipe: Recipe) -> CachedImage | None:
    """*recipe*'s image; None if it is not cached or its file is incomplete."""
    if recipe.download is None and recipe.build is None:
        return None
    return _store(recipe).lookup(key(recipe))


def obtain(recipe: Recipe, progress: Progress, *, mirror: str | None = None, source: Path | None = None) -> CachedImage:
    """*recipe*'s image: from the cache, or downloaded, or built, or taken from the local file *source*.

    :param mirror: for a download, a URL or folder as :func:`winlab.supply.download.rewrite` says; for a build, the URL
        of the distribution's archive.
    :param source: a local copy of a published image; it must have the published digest.
    :raises WinlabError: an error of the download or builder; the cache is unchanged.
    """
    name = key(recipe)
    if image := lookup(recipe):
        return image
    if source is not None and recipe.download is None:
        raise UsageError(
            f"The image '{recipe.name}' is built, not downloaded.",
            why=f"'{source}' could not be distinguished from a wrong file.",
            cure="Leave the file out.",
        )
    packages: dict[str, str] = {}

    def fill(output: Path) -> tuple[str, str]:
        if recipe.download is not None:
            part = unfinished(name, PurePosixPath(urlsplit(recipe.download.url).path).name)
            sha256 = download.fetch(recipe.download, output, progress, part=part, mirror=mirror, source=source)
            disk_format.check(output, recipe.format, str(source or recipe.download.url))
            return sha256, str(source or download.rewrite(recipe.download.url, mirror))
        assert recipe.build is not None
        work = output.parent.with_name("work")
        work.mkdir()
        request = BuildRequest(recipe, recipe.build.options, output, work, progress, mirror, packages)
        recipes.builder(recipe).build(request)
        progress.say("reading the image's digest")
        return files.sha256(output), recipe.build.builder

    return keep(recipe, name, fill, progress, lambda: {"packages": packages} if packages else {})


def keep(
    recipe: Recipe,
    name: str,
    fill: Callable[[Path], tuple[str, str]],
    progress: Progress,
    more: Callable[[], dict[str, Any]] = dict,
    *,
    instead: bool = False,
) -> CachedImage:
    """The image with a key: from the cache, or made by *fill*, while another winlab that wants to make it waits.

    :param name: its key, 64 hex digits.
    :param fill: writes the image to a path that does not exist yet, in an empty folder that is in one for further work.
        It gives its SHA-256 and where it came from.
    :param more: further content of the manifest; called when the image exists.
    :param instead: one that is in the cache gives way to the one that *fill* has made whole.
    :raises WinlabError: an error of *fill*; the cache is unchanged.
    """
    images = _store(recipe)
    with images.locked(name, progress, "making this image"):
        if not instead and (image := images.lookup(name)):
            return image
        begun = time.monotonic()  # the clock may be set back meanwhile
        with images.workspace(name) as work:
            output = work / "finished" / f"image.{recipe.format}"
            with images.writing(output.name):
                output.parent.mkdir()
                sha256, origin = fill(output)
            about = {"recipe": recipe.model_dump(mode="json"), "key": name, **more()}
            return images.publish(name, output, sha256, origin, time.monotonic() - begun, about, instead=instead)


def manifest(image: CachedImage) -> dict[str, Any]:
    """The whole manifest of a cached image."""
    document: dict[str, Any] = documents.from_json((image.path.parent / "manifest.json").read_text(encoding="utf-8"))
    return document


def verify(image: CachedImage, progress: Progress) -> None:
    """Read a whole image, and compare it with the digest that its manifest has.

    :raises TransferError: it has changed since it came into the cache.
    """
    compare(image, files.sha256(image.path, progress))


def compare(image: CachedImage, sha256: str) -> None:
    """As :func:`verify`, for an image that was read anyway.

    :param sha256: of its whole content.
    """
    if sha256 != image.sha256:
        raise TransferError(
            f"The image '{image.recipe.name}' in the cache has changed since it came there.",
            why=f"Its SHA-256 is {sha256}, and should be {image.sha256}.",
            cure=f"Run 'winlab image rm {image.key[:12]}', and then the same command again. Is the disk failing?",
            evidence=str(image.path),
        )


def verify_file(path: Path, progress: Progress) -> None:
    """As :func:`verify`, for the image with this file; any other file is the user's own.

    :raises TransferError: it has changed.
    """
    for image in entries():
        if image.path == path:
            verify(image, progress)


def comparing(path: Path) -> Callable[[str], None]:
    """As :func:`verify_file`, for a file that is read anyway: what to call with the SHA-256 of its whole content."""

    def accept(sha256: str) -> None:
        for image in entries():
            if image.path == path:
                compare(image, sha256)

    return accept


def unfinished(name: str, file: str) -> Path:
    """Where the download of *file* for the image with this key is kept between tries and runs."""
    return _store().unfinished(name, file)


def entries() -> list[CachedImage]:
    """All complete images in the cache, sorted by name and age (oldest first)."""
    return sorted(_store().entries(), key=lambda image: image.recipe.name)


def require() -> None:
    """Make the cache's folder, if it is missing.

    :raises AccessError: this user can't have one there.
    """
    _store().folder(_store().finished)


def remove(name: str) -> int:
    """Remove the image with this key; the freed space in bytes.

    :raises ConflictError: another winlab is making it.
    """
    freed = _store().remove(name)
    if freed is None:
        raise ConflictError("Another winlab is making this image.", cure="Wait for it to end, or interrupt it.")
    return freed


def prune(keep: set[str]) -> int:
    """Remove all images whose keys are not in *keep*, and all leftovers (:meth:`Store.prune`)."""
    return _store().prune(keep)


def _store(recipe: Recipe | None = None) -> Store[CachedImage]:
    """The store; an image in it was made from *recipe*, or, if that is None, from what its manifest says."""

    def read(key: str, file: Path, manifest: dict[str, Any]) -> CachedImage:
        made_from = recipe or Recipe.model_validate(manifest["recipe"])
        _check(manifest)
        return CachedImage(made_from, key, file, str(manifest["sha256"]), int(manifest["size"]))

    return Store(settings.cache_dir(), "images", read)


def _check(manifest: dict[str, Any]) -> None:
    """Check the parts of a manifest that some images have.

    :raises TypeError, ValueError: one is not as winlab writes it.
    """
    packages, facts = manifest.get("packages", {}), manifest.get("golden")
    if not isinstance(packages, dict) or not all(isinstance(one, str) for one in packages.values()):
        raise TypeError("packages")
    if facts is not None:
        if not isinstance(facts, dict) or not isinstance(facts.get("key"), str):
            raise TypeError("golden")
        if (ends := facts.get("evaluation_ends")) is not None and datetime.fromisoformat(ends).tzinfo is None:
            raise ValueError("evaluation_ends")
