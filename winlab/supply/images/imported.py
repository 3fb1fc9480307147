"""Images that another machine exported: their keys are worked out here, never taken from the file.

The author of such a file decides everything in it. So an image that the catalog pins must have the pinned digest. Any
other is kept under the key that winlab computes for it, and its manifest records that it was imported.
"""

from __future__ import annotations

import hashlib
import tarfile
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Recipe
from winlab.design.plan.model import sha256_of
from winlab.errors import ConflictError, TransferError, UsageError
from winlab.events import Progress
from winlab.supply import disk_format, tars
from winlab.supply.download import check_space
from winlab.supply.images import cache, golden, windows_media
from winlab.supply.images.cache import CachedImage

MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 20  # bytes
BLOCK = 1 << 20
USUAL_DISK = 20  # GiB of a node whose recipe suggests nothing
_HEX = r"^[0-9a-f]{64}$"


class _GoldenFacts(BaseModel):
    """What is known of a golden image; the rest is only shown."""

    model_config = ConfigDict(extra="allow")

    key: str = Field(pattern=r"^[0-9a-f]{16}$")
    build: str
    evaluation_ends: str | None = Field(None, pattern=r"^[0-9-]{10}T[0-9:.]{8,15}\+00:00$")
    medium: str | None = None
    programs: str
    inputs: dict[str, Any]

    @field_validator("evaluation_ends")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None:
            datetime.fromisoformat(value)
        return value


class _Manifest(BaseModel):
    """The exporter's manifest, as far as it is used."""

    file: str
    sha256: str = Field(pattern=_HEX)
    size: int = Field(ge=0)
    origin: str
    made: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$")
    seconds: float = Field(ge=0, allow_inf_nan=False)
    recipe: Recipe
    key: str = Field(pattern=_HEX)
    packages: dict[str, str] = {}
    golden: _GoldenFacts | None = None


def bring(path: Path, progress: Progress) -> CachedImage:
    """Take an exported image into the cache.

    :raises UsageError: the file is not such an image, or not the one that the catalog pins.
    :raises ConflictError: the cache has another image with that key.
    :raises TransferError: it is damaged.
    :raises HostError: there is no space.
    """
    try:
        with tars.opened(path) as archive:
            rows = tars.members(archive)
            manifest = _read(archive, next(rows, None))
            row = next(rows, None)
            if row is None or not row.isreg() or (row.name, row.size) != (manifest.file, manifest.size):
                raise ValueError(f"'{manifest.file}' with {manifest.size:,} bytes does not come second")
            member = archive.extractfile(row)
            assert member is not None  # a plain file
            return _keep(manifest, member, path, progress)
    except (OSError, ValueError, tarfile.TarError) as error:
        raise UsageError(
            f"'{path}' is not an image that winlab exported.",
            why=_reason(error),
            cure="'winlab image export' makes one.",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _read(archive: tarfile.TarFile, row: tarfile.TarInfo | None) -> _Manifest:
    if row is None or not row.isreg() or row.name != MANIFEST or row.size > LARGEST_MANIFEST:
        raise ValueError(f"it does not begin with '{MANIFEST}'")
    file = archive.extractfile(row)
    assert file is not None  # a plain file
    return _Manifest.model_validate_json(file.read())


def _keep(manifest: _Manifest, member: IO[bytes], path: Path, progress: Progress) -> CachedImage:
    recipe, key, pinned = _judged(manifest, path)
    if manifest.key != key:
        raise UsageError(
            f"The image in '{path}' is not '{recipe.name}' of this winlab.",
            why=f"Its key is {manifest.key[:12]}, and this winlab makes {key[:12]}: recipe, builder or version differ.",
            cure="Export it with the same version of winlab; your own drivers or media go in with 'winlab image add'.",
        )

    filled: list[Path] = []

    def fill(output: Path) -> tuple[str, str]:
        filled.append(output)
        check_space(output.parent, manifest.size)
        _copy(manifest, recipe, member, output, path, progress)
        disk_format.check(output, recipe.format, str(path))
        if recipe.format == "qcow2":
            _check_size(manifest, recipe, output, path)
        if recipe.is_iso and recipe.windows is not None:
            windows_media.check_release(recipe, output)
        return manifest.sha256, manifest.origin

    more: dict[str, Any] = {"made": manifest.made, "seconds": manifest.seconds}  # it stays the same image
    if manifest.packages:
        more["packages"] = manifest.packages
    if manifest.golden is not None:
        more["golden"] = manifest.golden.model_dump(mode="json")
    if not pinned:
        more["imported"] = str(path)
    image = cache.keep(recipe, key, fill, progress, lambda: more)
    if not filled:
        cache.verify(image, progress)  # it was there: is it still what it was?
    if image.sha256 != manifest.sha256:
        raise ConflictError(
            f"The cache already has another '{recipe.name}' with the key {key[:12]}.",
            why=f"Its SHA-256 is {image.sha256}, and that of '{path}' is {manifest.sha256}.",
            cure=f"To use the one in '{path}', run 'winlab image rm {key[:12]}' first.",
        )
    return image


def _check_size(manifest: _Manifest, recipe: Recipe, output: Path, path: Path) -> None:
    """Check the size of the disk in an image: machines get all of it, whatever their spec says.

    :raises UsageError: it is larger than such an image is made.
    """
    # a plan takes a golden image by its inputs, the size of the disk among them (winlab.design.plan.golden.inputs)
    machine = manifest.golden.inputs.get("machine") if manifest.golden is not None else None
    made = machine[-1] if isinstance(machine, list) and machine else None
    most = made if isinstance(made, int) else (recipe.disk_gib or USUAL_DISK) * 1024
    size = disk_format.virtual_size(output)
    if size > most << 20:
        raise UsageError(
            f"The image in '{path}' has a disk of {size >> 20:,} MiB.",
            why=f"Images of '{recipe.name}' have {most:,} MiB at most.",
            cure="Export it again where it was made.",
        )


def _judged(manifest: _Manifest, path: Path) -> tuple[Recipe, str, bool]:
    """The catalog's recipe, the key that winlab computes for the image, and whether the catalog pins its bytes.

    :raises UsageError: the catalog has no such recipe, or pins other bytes.
    """
    if manifest.recipe.name not in recipes.names():
        raise UsageError(
            f"This winlab has no image '{manifest.recipe.name}', which is in '{path}'.",
            cure="'winlab image list' shows all recipes.",
        )
    recipe = recipes.get(manifest.recipe.name)
    if manifest.golden is not None:
        if recipe.windows is None:
            raise UsageError(
                f"'{path}' claims to be a golden image of '{recipe.name}'.",
                why="Only images of Windows can be golden.",
                cure="'winlab image list' shows all recipes.",
            )
        own = _golden_key(manifest.golden)
        if manifest.golden.key != own:  # by which plans find it
            raise UsageError(
                f"The golden image in '{path}' is not the one that it claims to be.",
                why=f"It calls itself {manifest.golden.key}, and its inputs make {own}.",
                cure="Export it again where it was made, with the same version of winlab.",
            )
        recipe, key = recipe.model_copy(update={"format": "qcow2"}), golden.cache_key(own)
        pinned = False
    elif recipe.download is not None:
        key, pinned = cache.key(recipe), True  # _copy compares the digest
    elif recipe.build is not None:
        key, pinned = cache.key(recipe), False
    else:
        key = windows_media.key(manifest.sha256)
        pinned = any(one.sha256 == manifest.sha256 for one in recipe.evaluations)
    if manifest.file != f"image.{recipe.format}":
        raise UsageError(
            f"'{path}' is not an image '{recipe.name}'.",
            why=f"Its file is '{manifest.file}', and images of '{recipe.name}' are image.{recipe.format}.",
            cure="Export it again with 'winlab image export' of this version.",
        )
    return recipe, key, pinned


def _golden_key(facts: _GoldenFacts) -> str:
    """The key of a golden image by its inputs. A product key is not among them: then the image's own word stands."""
    windows = facts.inputs.get("windows")
    if isinstance(windows, dict) and windows.get("product_key"):
        return facts.key
    inputs = (
        {**facts.inputs, "windows": {**windows, "product_key": None}} if isinstance(windows, dict) else facts.inputs
    )
    return sha256_of(inputs)[:16]


def _copy(manifest: _Manifest, recipe: Recipe, member: IO[bytes], output: Path, path: Path, progress: Progress) -> None:
    """Copy as many bytes as the manifest says, and compare their digests.

    :raises TransferError: they are others than the manifest says, or than the catalog pins.
    """
    sha256, sha512, left = hashlib.sha256(), hashlib.sha512(), manifest.size
    pin = recipe.download if manifest.golden is None else None
    with output.open("wb") as file:
        while left and (block := member.read(min(BLOCK, left))):
            left -= len(block)
            sha256.update(block)
            if pin is not None and pin.sha512:
                sha512.update(block)
            file.write(block)
            progress.say(f"{manifest.size >> 20} MiB", 1 - left / manifest.size)
    digest = sha256.hexdigest()
    if digest != manifest.sha256:
        raise TransferError(
            f"The image in '{path}' is damaged.",
            why=f"Its SHA-256 is {digest}, and its manifest says {manifest.sha256}.",
            cure="Export it again.",
        )
    if pin is None:
        return
    wanted, has = (pin.sha256, digest) if pin.sha256 else (pin.sha512, sha512.hexdigest())
    if wanted != has:
        raise TransferError(
            f"'{path}' does not hold the published image '{recipe.name}'.",
            why=f"The catalog pins {wanted}, and it has {has}.",
            cure=f"Download it with 'winlab image build {recipe.name}', or export a good copy.",
        )
