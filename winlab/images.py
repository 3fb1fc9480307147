"""Images as a whole: the cache and the base volumes in the pool."""

from __future__ import annotations

from collections.abc import Iterable

from lxml import etree

from winlab.catalog import Recipe
from winlab.errors import HostError
from winlab.media import cache
from winlab.vm import domains
from winlab.vm.connection import connected
from winlab.vm.volumes import MARKER, Pool


def prune_all(recipes: Iterable[Recipe]) -> int:
    """Remove cached images that are none of *recipes*', and base volumes that no other volume stands on
    and no machine has in a drive.

    :returns: how many bytes of the cache were freed; volumes come on top.
    """
    kept = {cache.key(recipe) for recipe in recipes if recipe.build or recipe.download}
    # media cannot be made again: only the person who brought them knows whether they are needed
    kept |= {image.key for image in cache.entries() if not (image.recipe.build or image.recipe.download)}
    freed = cache.prune(kept)
    try:
        with connected() as conn:
            _prune_pool(Pool(conn), domains.files(conn))
    except HostError:
        pass  # a host without libvirt has no volumes to prune
    return freed


def _prune_pool(pool: Pool, inserted: set[str]) -> None:
    pool.refresh()
    used = inserted | {path for name in pool.names() if (path := _backing(pool, name))}
    for name in pool.names("base-"):
        if name.endswith(MARKER):
            if not pool.exists(name.removesuffix(MARKER)):
                pool.delete(name)
        elif str(pool.path(name)) not in used and (pool.is_complete(name) or pool.is_abandoned(name)):
            pool.delete(name + MARKER)
            pool.delete(name)


def _backing(pool: Pool, name: str) -> str | None:
    path = etree.fromstring(pool.describe(name).encode()).findtext("backingStore/path")
    return None if path is None else str(path)
