"""What a lock file pins besides artifacts: read from the catalog, the cache, and the person's own files."""

from __future__ import annotations

from pathlib import Path

from winlab.design.catalog import recipes
from winlab.design.catalog.recipes import Evaluation
from winlab.design.plan import golden
from winlab.design.plan.model import Plan
from winlab.events import Progress
from winlab.operations.lock_file import Image, Medium
from winlab.supply import digest
from winlab.supply.images import cache, windows_media


def images(plan: Plan) -> list[Image]:
    """The catalog's images that the plan takes."""
    found = {}
    for node in plan.nodes:
        recipe = recipes.get(node.image)
        if recipe.download is None and recipe.build is None:
            continue  # made from the person's own medium
        if node.windows is not None and node.windows.media is not None:
            continue
        published = None
        if recipe.download is not None:
            kind = "sha256" if recipe.download.sha256 else "sha512"
            published = f"{kind}:{recipe.download.sha256 or recipe.download.sha512}"
        there = cache.lookup(recipe)
        found[recipe.name] = Image(
            name=recipe.name,
            key=cache.key(recipe),
            download=published,
            sha256=there.sha256 if there else None,
            packages=cache.manifest(there).get("packages", {}) if there else {},
        )
    return list(found.values())


def media(plan: Plan, progress: Progress) -> list[Medium]:
    """The person's own files that the plan takes: media, drivers, OpenSSH, scripts, files and the template. Reads all
    of each; of evaluation media and drivers that are still to be fetched, the published digests.

    :raises UsageError: one can't be read.
    """
    found: dict[tuple[str, Path], Medium] = {}
    for node in plan.nodes:
        if node.windows is None:
            continue
        own: list[tuple[str, Path | None]] = [("medium", node.windows.media), *golden.files(node.windows)]
        if (recipe := recipes.get(node.image)).evaluations:
            own[0] = ("medium", windows_media.at_hand(recipe, node.windows.media))
            if own[0][1] is None:
                found.update(_to_come(node.image, recipe.evaluations[0]))
        for what, path in own:
            name = f"{what} of {node.image}"
            if path is not None and (name, path) not in found:
                found[name, path] = Medium(name=name, file=path.name, sha256=_digest(path, progress))
    return list(found.values())


def _to_come(image: str, evaluation: Evaluation) -> dict[tuple[str, Path], Medium]:
    """The medium that create fetches once the terms are accepted."""
    assert evaluation.sha256 is not None
    medium = Medium(name=f"medium of {image}", file=evaluation.file, sha256=evaluation.sha256)
    return {(medium.name, Path(medium.file)): medium}


def fetched(plan: Plan) -> list[Medium]:
    """The Windows media in the cache that the plan takes, by the digests that they came with. Reads nothing of them."""
    found = []
    for node in plan.nodes:
        recipe = recipes.get(node.image)
        if node.windows is None or node.windows.media is not None or not recipe.evaluations:
            continue
        if (image := windows_media.find(recipe)) is not None:
            found.append(Medium(name=f"medium of {node.image}", file=image.path.name, sha256=image.sha256))
    return found


def _digest(path: Path, progress: Progress) -> str:
    """The SHA-256 of a file; of drivers that are still to be fetched, the one that they must have."""
    published = recipes.get(windows_media.DRIVERS).download
    if not path.exists() and published is not None and published.sha256 and path == windows_media.drivers():
        return published.sha256
    return digest.sha256(path, progress)
