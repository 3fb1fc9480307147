"""What a lock file pins besides artifacts: read from the catalog, the cache, and the person's own files."""

from __future__ import annotations

from pathlib import Path

from winlab import catalog
from winlab.cluster.lock import Image, Medium
from winlab.events import Progress
from winlab.media import cache, digest
from winlab.plan import Plan


def images(plan: Plan) -> list[Image]:
    """The catalog's images that the plan takes."""
    found = {}
    for node in plan.nodes:
        recipe = catalog.get(node.image)
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
            name=recipe.name, key=cache.key(recipe), download=published, sha256=there.sha256 if there else None
        )
    return list(found.values())


def media(plan: Plan, progress: Progress) -> list[Medium]:
    """The person's own files that the plan takes: media, drivers, OpenSSH. Reads all of each.

    :raises UsageError: one can't be read.
    """
    found: dict[tuple[str, Path], Medium] = {}
    for node in plan.nodes:
        if node.windows is None:
            continue
        own = {"medium": node.windows.media, "drivers": node.windows.drivers, "OpenSSH": node.windows.openssh}
        for what, path in own.items():
            name = f"{what} of {node.image}"
            if path is not None and (name, path) not in found:
                found[name, path] = Medium(name=name, file=path.name, sha256=digest.sha256(path, progress))
    return list(found.values())
