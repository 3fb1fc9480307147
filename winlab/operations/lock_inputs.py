"""What a lock file pins besides artifacts: read from the catalog, the cache, and the user's own files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from winlab.design.catalog import recipes
from winlab.design.plan import golden as planned
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import WindowsNode
from winlab.design.plan.stock import Stock
from winlab.operations.lock_file import LockedGolden, LockedImage, LockedMedium
from winlab.supply.artifacts.bundle.file import open_bundle
from winlab.supply.images import cache, library, windows_media
from winlab.supply.images import golden as golden_cache


def images(plan: Plan) -> list[LockedImage]:
    """The catalog's images that the plan uses."""
    locked = {}
    for node in plan.nodes:
        recipe = recipes.get(node.image)
        if recipe.download is None and recipe.build is None:
            continue  # made from the user's own medium
        if node.own_medium:
            continue
        published = None
        if recipe.download is not None:
            kind = "sha256" if recipe.download.sha256 else "sha512"
            published = f"{kind}:{recipe.download.sha256 or recipe.download.sha512}"
        there = cache.lookup(recipe)
        locked[recipe.name] = LockedImage(
            name=recipe.name,
            key=cache.key(recipe),
            download=published,
            sha256=there.sha256 if there else None,
            packages=cache.manifest(there).get("packages", {}) if there else {},
        )
    return list(locked.values())


def bundle(path: Path | None) -> str | None:
    """The digest of the bundle that the user named, if any."""
    return None if path is None else f"sha256:{open_bundle(path).digest}"


def golden(plan: Plan, *, only_imported: bool = False) -> list[LockedGolden]:
    """The golden images that the plan's nodes are clones of, each once.

    :param only_imported: only imported images have a digest. For the others, the key says what they were made from:
        two images made from the same inputs never have the same bytes.
    """
    names = {str(node.windows.golden): node.image for node in plan.clones()}
    entries = golden_cache.entries() if names else []
    digests = {one.key: one.image.sha256 for one in entries if not only_imported or library.is_imported(one.image)}
    return [LockedGolden(name=name, key=key, sha256=digests.get(key)) for key, name in names.items()]


def media(plan: Plan, stock: Stock) -> list[LockedMedium]:
    """The files that the plan uses besides the catalog's: media, drivers, OpenSSH, scripts, files and the template.

    Evaluation media and published drivers are among them, whether cached or still to be downloaded.
    """
    locked: dict[tuple[str, str], LockedMedium] = {}
    for node in plan.windows_nodes():
        rows = [(what, sha256, _file(sha256, stock)) for what, sha256 in planned.files(node.windows)]
        if node.windows.template is not None:
            text = json.dumps(dict(node.windows.template.texts), sort_keys=True)
            rows.append(("template", hashlib.sha256(text.encode()).hexdigest(), node.windows.template.name))
        if node.windows.medium and recipes.get(node.image).build is None:
            rows.append(("medium", node.windows.medium, _medium_file(node, stock)))
        for what, sha256, file in rows:
            name = f"{what} of {node.image}"
            locked[name, sha256] = LockedMedium(name=name, file=file, sha256=sha256)
    return list(locked.values())


def _file(sha256: str, stock: Stock) -> str:
    """The name of a file that the spec names; for a catalog file, the name of its recipe."""
    return stock.paths[sha256].name if sha256 in stock.paths else f"{windows_media.DRIVERS}.iso"


def _medium_file(node: WindowsNode, stock: Stock) -> str:
    if node.windows.own_medium:
        return _file(node.windows.medium, stock)
    known = {one.sha256: one.file for one in recipes.get(node.image).evaluations}
    return known.get(node.windows.medium, f"{node.image}.iso")


def fetched(plan: Plan) -> list[LockedMedium]:
    """The cached Windows media that the plan uses, by their recorded digests. Does not read the media."""
    locked = []
    for node in plan.windows_nodes():
        recipe = recipes.get(node.image)
        if node.windows.own_medium or not recipe.evaluations:
            continue
        if (image := windows_media.find(recipe)) is not None:
            locked.append(LockedMedium(name=f"medium of {node.image}", file=image.path.name, sha256=image.sha256))
    return locked
