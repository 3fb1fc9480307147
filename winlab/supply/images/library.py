"""The cache of images as users see it: what each image is, whether it is stale, and export and import."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from winlab import files
from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.errors import NotFoundError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply.images import cache, stock
from winlab.supply.images.cache import CachedImage
from winlab.supply.images.golden import Golden

SHORT = 12  # digits of a key that are shown; fewer will do
KEY = re.compile(r"[0-9a-f]{4,64}")
CHUNK = 1 << 20


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
    def state(self) -> str:
        """Why it is stale; empty if it is not."""
        found = self.golden
        if found is not None:
            notes = []
            if found.days_left is not None:
                left = f"evaluation ends in {found.days_left} days" if found.days_left >= 0 else "evaluation is over"
                notes.append(left)
            if found.facts.get("programs") != stock.scripts():
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
    found = [one for one in every if one.name == what]
    if not found and KEY.fullmatch(what):
        found = [one for one in every if one.image.key.startswith(what)]
    if not found:
        raise NotFoundError(
            f"There is no image '{what}' in the cache.", cure="'winlab image list' shows what there is."
        )
    if len(found) > 1:
        keys = ", ".join(f"{one.key} ({one.kind})" for one in found)
        raise UsageError(f"'{what}' could be several images.", cure=f"Name one by its key: {keys}.")
    return found[0]


def export(item: Item, to: Path, progress: Progress) -> None:
    """Write an image with its manifest to one file, for another machine's cache.

    :raises UsageError: the file exists or can't be written.
    """
    if to.exists():
        raise UsageError(f"'{to}' is there already.", cure="Remove it, or choose another name with --to.")
    partial = to.with_name(f"{to.name}.part")
    try:
        with partial.open("wb") as file, tarfile.open(fileobj=file, mode="w") as archive:
            text = (json.dumps(item.manifest, indent=2) + "\n").encode()
            row = tarfile.TarInfo("manifest.json")
            row.size = len(text)
            archive.addfile(row, io.BytesIO(text))
            progress.say(f"{item.image.size >> 20} MiB")
            archive.add(item.image.path, item.image.path.name, filter=_plain)
        partial.replace(to)
    except OSError as error:
        raise UsageError(f"'{to}' can't be written.", why=str(error)) from error
    finally:
        partial.unlink(missing_ok=True)


def _plain(row: tarfile.TarInfo) -> tarfile.TarInfo:
    row.uid = row.gid = 0
    row.uname = row.gname = ""
    return row


def bring(path: Path, progress: Progress) -> Item:
    """Take an exported image into the cache; its digest is checked.

    :raises UsageError: the file is not such an image.
    :raises TransferError: it is damaged.
    """
    try:
        with tarfile.open(path) as archive:
            manifest = _manifest(archive, path)
            member = archive.extractfile(str(manifest["file"]))
            assert member is not None  # the manifest's own file, which is a plain one
            return _keep(manifest, member, path, progress)
    except (OSError, tarfile.TarError, KeyError, TypeError, AssertionError, ValidationError) as error:
        raise UsageError(
            f"'{path}' is no image that winlab exported.", why=str(error), cure="'winlab image export' makes one."
        ) from error


def _manifest(archive: tarfile.TarFile, path: Path) -> dict[str, Any]:
    file = archive.extractfile("manifest.json")
    if file is None:
        raise UsageError(f"'{path}' is no image that winlab exported.")
    found: dict[str, Any] = json.loads(file.read())
    return found


def _keep(manifest: dict[str, Any], member: IO[bytes], path: Path, progress: Progress) -> Item:
    def fill(output: Path) -> tuple[str, str]:
        progress.say(f"{int(manifest['size']) >> 20} MiB")
        with output.open("wb") as file:
            shutil.copyfileobj(member, file, CHUNK)
        found = files.sha256(output)
        if found != manifest["sha256"]:
            raise TransferError(
                f"The image in '{path}' is damaged.",
                why=f"Its SHA-256 is {found}, and its manifest says {manifest['sha256']}.",
                cure="Export it again.",
            )
        return found, str(manifest["origin"])

    recipe = Recipe.model_validate(manifest["recipe"])
    # it stays the same image
    more: dict[str, Any] = {name: manifest[name] for name in ("golden", "made", "seconds") if name in manifest}
    image = cache.keep(recipe, str(manifest["key"]), fill, progress, lambda: more)
    return Item(image, cache.manifest(image))
