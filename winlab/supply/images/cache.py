"""The cache of images: everything that is slow to fetch or make is kept, once per set of inputs.

::

    <cache>/                        settings.cache_dir(); belongs to one user, who needs no rights beyond that
    ├── images/<key>/               a finished image; appears all at once, by a rename
    │   ├── image.qcow2             (or image.raw, image.iso), read-only
    │   └── manifest.json           recipe, digest, size, when and how long it took
    ├── downloads/                  unfinished downloads, which the next try resumes
    ├── staging/<key>/              where an image is being made; swept when its maker is gone
    └── locks/<key>.lock            held while an image is made, so that two winlabs don't make the same one

The key is a digest of everything that decides the image's bytes: format, and either the published digest or the build's
options and its builder's fingerprint. Names, summaries and mirrors don't count.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from winlab import files, locks, settings
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import BuildRequest, Recipe
from winlab.errors import AccessError, ConflictError, UsageError
from winlab.events import Progress
from winlab.run import run
from winlab.supply import download


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
            f"The image '{recipe.name}' can't be had by itself.",
            why="It is made from installation media that only you can provide.",
            cure="Give the path of the media (--iso PATH).",
        )
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def lookup(recipe: Recipe) -> CachedImage | None:
    """*recipe*'s image; None if it is not cached or its file is incomplete."""
    if recipe.download is None and recipe.build is None:
        return None
    return _read(_folder("images") / key(recipe), recipe)


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
            why=f"'{source}' could not be told from a wrong file.",
            cure="Leave the file out.",
        )

    def make(staging: Path) -> CachedImage:
        return _make(recipe, name, staging, progress, mirror, source)

    return _anew(recipe, name, progress, make)


def keep(
    recipe: Recipe,
    name: str,
    fill: Callable[[Path], tuple[str, str]],
    progress: Progress,
    more: Callable[[], dict[str, Any]] = dict,
) -> CachedImage:
    """An image that is neither built nor freely published: a user's own medium, or one with terms to accept.

    :param name: its key, 64 hex digits.
    :param fill: writes the image to a path that does not exist yet; gives its SHA-256 and where it came from.
    :param more: further content of the manifest; called when the image exists.
    :raises WinlabError: an error of *fill*; the cache is unchanged.
    """

    def make(staging: Path) -> CachedImage:
        begun = time.time()
        staging.mkdir(parents=True)
        output = staging / f"image.{recipe.format}"
        sha256, origin = fill(output)
        return _finish(recipe, name, staging, output, sha256, origin, begun, more())

    return _anew(recipe, name, progress, make)


def manifest(image: CachedImage) -> dict[str, Any]:
    """The whole manifest of a cached image."""
    found: dict[str, Any] = json.loads((image.path.parent / "manifest.json").read_text(encoding="utf-8"))
    return found


def unfinished(name: str, file: str) -> Path:
    """Where the download of *file* for the image with this key is kept between tries and runs."""
    return _folder("downloads") / f"{name}.{file}.part"


def entries() -> list[CachedImage]:
    """All complete images in the cache, sorted by name and age (oldest first)."""
    folders = sorted(_folder("images").iterdir(), key=lambda path: path.stat().st_mtime)
    images = [image for folder in folders if (image := _read(folder, None))]
    return sorted(images, key=lambda image: image.recipe.name)


def remove(name: str) -> int:
    """Remove the image with this key; the freed space in bytes.

    :raises ConflictError: another winlab is making it.
    """
    with locks.attempt(_lock(name)) as mine:
        if not mine:
            raise ConflictError("Another winlab is making this image.", cure="Wait for it to end, or interrupt it.")
        return _remove(_folder("images") / name)


def prune(keep: set[str]) -> int:
    """Remove all images whose keys are not in *keep*, and all leftovers; the freed space in bytes.

    What another winlab is making at this moment is left alone.
    """
    freed = _sweep()
    for path in [*_folder("images").iterdir(), *_folder("downloads").iterdir()]:
        name = path.name.partition(".")[0]
        if path.parent.name == "images" and name in keep:
            continue
        with locks.attempt(_lock(name)) as mine:
            if mine:
                freed += _remove(path)
    return freed


def _anew(recipe: Recipe, name: str, progress: Progress, make: Callable[[Path], CachedImage]) -> CachedImage:
    """Call *make* for an image in a folder of its own, unless another winlab has made it meanwhile."""
    with locks.held(_lock(name), progress, "making this image"):
        if image := _read(_folder("images") / name, recipe):
            return image
        staging = _folder("staging") / name
        _remove(staging)  # left by a killed process: we hold the lock
        _sweep()
        try:
            return make(staging)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _make(
    recipe: Recipe, name: str, staging: Path, progress: Progress, mirror: str | None, source: Path | None
) -> CachedImage:
    """Make the image in *staging* and move it to its place; the caller holds the lock."""
    begun = time.time()
    packages: dict[str, str] = {}
    work = staging / "work"
    work.mkdir(parents=True)
    output = staging / f"image.{recipe.format}"
    if recipe.download is not None:
        part = unfinished(name, PurePosixPath(urlsplit(recipe.download.url).path).name)
        sha256 = download.fetch(recipe.download, output, progress, part=part, mirror=mirror, source=source)
        origin = str(source or download.rewrite(recipe.download.url, mirror))
    else:
        assert recipe.build is not None
        request = BuildRequest(recipe, recipe.build.options, output, work, progress, mirror, packages)
        recipes.builder(recipe).build(request)
        progress.say("reading the image's digest")
        sha256 = files.sha256(output)
        origin = recipe.build.builder
    shutil.rmtree(work)
    return _finish(recipe, name, staging, output, sha256, origin, begun, {"packages": packages} if packages else None)


def _finish(
    recipe: Recipe,
    name: str,
    staging: Path,
    output: Path,
    sha256: str,
    origin: str,
    begun: float,
    more: dict[str, Any] | None = None,
) -> CachedImage:
    """Describe the finished image in *staging* and move both to their place."""
    manifest = {
        "recipe": recipe.model_dump(mode="json"),
        "key": name,
        "file": output.name,
        "sha256": sha256,
        "size": output.stat().st_size,
        "origin": origin,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
        "seconds": round(time.time() - begun, 1),
        **(more or {}),
    }
    (staging / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    output.chmod(0o444)
    # After a power failure the rename must not exist without the data.
    for path in (output, staging / "manifest.json", staging):
        files.sync(path)
    final = _folder("images") / name
    _remove(final)  # exists only if it was incomplete
    staging.rename(final)
    files.sync(final.parent)
    image = _read(final, recipe)
    assert image is not None
    return image


def _read(folder: Path, recipe: Recipe | None) -> CachedImage | None:
    """The image in *folder*, if manifest and file agree."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        path = folder / str(manifest["file"])
        if path.stat().st_size != manifest["size"]:
            return None
        made_from = recipe or Recipe.model_validate(manifest["recipe"])
        return CachedImage(made_from, folder.name, path, str(manifest["sha256"]), int(manifest["size"]))
    except (OSError, ValueError, KeyError, TypeError, ValidationError):
        return None


def _folder(name: str) -> Path:
    """A folder of the cache, created if missing.

    :raises AccessError: it can't be created.
    """
    folder = settings.cache_dir() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AccessError(
            f"The cache '{settings.cache_dir()}' can't be used.",
            why=str(error),
            cure="Give yourself that folder, or name another with WINLAB_CACHE.",
            causes=[error],
        ) from error
    return folder


def _lock(name: str) -> Path:
    return _folder("locks") / f"{name}.lock"


def _sweep() -> int:
    """Remove what killed builds left behind; the freed bytes. Builds that run are left alone."""
    freed = 0
    for path in _folder("staging").iterdir():
        with locks.attempt(_lock(path.name)) as mine:
            if mine:
                freed += _remove(path)
    return freed


def _remove(path: Path) -> int:
    """Remove a file or folder; the bytes that it took on disk."""
    if not path.exists():
        return 0
    if path.is_file():
        freed = path.stat().st_blocks * 512
        path.unlink()
        return freed
    _unmount(path)
    freed = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):
                freed += (Path(folder) / name).lstat().st_blocks * 512
    limit = time.monotonic() + 10
    while path.exists():
        try:
            shutil.rmtree(path)
        except OSError as error:
            # A builder whose winlab was killed may be cleaning up concurrently.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or time.monotonic() > limit:
                raise
            time.sleep(0.2)
    return freed


def _unmount(folder: Path) -> None:
    """Unmount what a killed builder left mounted under *folder*: nothing may be removed through a mount.

    A builder that was told to end unmounts by itself; it gets a few seconds for that.
    """
    limit = time.monotonic() + 10
    while mounts := mounted_under(folder, Path("/proc/self/mounts").read_text(encoding="utf-8")):
        if time.monotonic() > limit:
            for mount in mounts:
                run(["umount", mount])
        time.sleep(0.2)


def mounted_under(folder: Path, table: str) -> list[str]:
    """The mount points under *folder* in *table* (proc(5), /proc/self/mounts), innermost first."""
    base = f"{folder.resolve()}/"
    points = [line.split(" ")[1] for line in table.splitlines()]
    # Blanks and the like are written as octal numbers there.
    clear = [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), point) for point in points]
    return [point for point in reversed(clear) if point.startswith(base)]
