"""The cache of images as users see it: what each image is, whether it is stale, and export."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from winlab import files
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.model import Plan
from winlab.errors import NotFoundError, UsageError
from winlab.events import Progress
from winlab.supply.images import cache, imported, stock, windows_media
from winlab.supply.images import golden as golden_cache
from winlab.supply.images.cache import CachedImage
from winlab.supply.images.golden import Golden

SHORT = 12  # digits of a key that are shown; fewer will do
KEY = re.compile(r"[0-9a-f]{4,64}")


@dataclass(frozen=True)
class Item:
    """An image in the cache with its manifest."""

    image: CachedImage
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        """Its short name for users."""
        return self.image.key[:SHORT]

    @property
    def name(self) -> str:
        """The name of its recipe."""
        return self.image.recipe.name

    @property
    def golden(self) -> Golden | None:
        """The image as a golden one; None if it is not golden."""
        facts = self.manifest.get("golden")
        return None if facts is None else Golden(str(facts["key"]), self.image, facts)

    @property
    def kind(self) -> Literal["golden", "medium", "drivers", "disk"]:
        """What it is for."""
        if self.golden is not None:
            return "golden"
        return "drivers" if self.image.recipe.os == "none" else "medium" if self.image.recipe.windows else "disk"

    @property
    def imported(self) -> str:
        """The file that it was imported from; empty if it was made here, or the catalog pins its digest."""
        return str(self.manifest.get("imported", ""))

    @property
    def state(self) -> str:
        """Why it is stale, and whether it was imported; empty if neither."""
        return "; ".join(filter(None, ("imported" if self.imported else "", self._stale())))

    def _stale(self) -> str:
        golden = self.golden
        if golden is not None:
            notes = []
            if golden.days_left is not None:
                left = f"evaluation ends in {golden.days_left} days" if golden.days_left >= 0 else "evaluation is over"
                notes.append(left)
            if golden.facts.get("programs") != stock.scripts():
                notes.append("stale: made with other scripts of winlab")
            return "; ".join(notes)
        recipe = self.image.recipe
        if not (recipe.build or recipe.download):
            return ""
        current = _current(recipe)
        if not recipes.has_builder(current):
            return "its builder is not installed"
        if self.image.key != cache.key(current):
            return "stale: its recipe has changed"
        return ""


def _current(recipe: Recipe) -> Recipe:
    return recipes.get(recipe.name) if recipe.name in recipes.names() else recipe


def items() -> list[Item]:
    """All images in the cache, by name and age (oldest first)."""
    return [Item(image, cache.manifest(image)) for image in cache.entries()]


def find(what: str) -> Item:
    """The image that *what* names: an unambiguous prefix of a key, or the name of a recipe with a single image.

    :raises NotFoundError: there is none.
    :raises UsageError: there are several.
    """
    every = items()
    matches = [one for one in every if one.name == what]
    if not matches and KEY.fullmatch(what):
        matches = [one for one in every if one.image.key.startswith(what)]
    if not matches:
        raise NotFoundError(
            f"There is no image '{what}' in the cache.", cure="'winlab image list' shows what there is."
        )
    if len(matches) > 1:
        keys = ", ".join(f"{one.key} ({one.kind})" for one in matches)
        raise UsageError(f"'{what}' could be several images.", cure=f"Name one by its key: {keys}.")
    return matches[0]


def export(item: Item, to: Path, progress: Progress) -> None:
    """Write an image with its manifest to one file, for another machine's cache.

    :raises UsageError: the file exists or can't be written.
    """
    files.check_named(to, stream=False)
    if to.exists():
        raise UsageError(f"'{to}' already exists.", cure="Remove it, or choose another name with --to.")
    try:
        with (
            files.replacing(to) as partial,
            partial.open("wb") as file,
            tarfile.open(fileobj=file, mode="w") as archive,
        ):
            text = (json.dumps(item.manifest, indent=2) + "\n").encode()
            row = tarfile.TarInfo("manifest.json")
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text))
            progress.say(f"{item.image.size >> 20} MiB")
            archive.add(item.image.path, item.image.path.name, filter=_plain)
    except OSError as error:
        raise UsageError(f"'{to}' can't be written.", why=str(error)) from error


def _plain(row: tarfile.TarInfo) -> tarfile.TarInfo:
    row.uid = row.gid = 0
    row.uname = row.gname = ""
    return row


def bring(path: Path, progress: Progress) -> Item:
    """Take an exported image into the cache; see :func:`winlab.supply.images.imported.bring`."""
    if files.is_no_file(path):
        raise UsageError(f"'{path}' is not an exported image.", why="It is not a file.")
    image = imported.bring(path, progress)
    return Item(image, cache.manifest(image))


def is_imported(image: CachedImage) -> bool:
    """Whether a cached image was imported, and the catalog knows no digest of it."""
    return bool(cache.manifest(image).get("imported"))


def imported_for(plan: Plan) -> list[Item]:
    """The images of a plan that were imported, and of which the catalog knows no digest."""
    wanted = {golden_cache.cache_key(str(node.windows.golden)) for node in plan.clones()}
    for node in plan.nodes:
        recipe = recipes.get(node.image)
        image = None if node.own_medium or node.is_clone else cache.lookup(recipe) or windows_media.find(recipe)
        wanted |= {image.key} if image is not None else set()
    return [one for one in items() if one.imported and one.image.key in wanted]
