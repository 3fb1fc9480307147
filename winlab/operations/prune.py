"""Images as a whole: the cache and the base volumes in the pool, and what still needs these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from winlab.adapters.vm import devices, domains
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import CLAIM, MARKER, StoragePool
from winlab.design.catalog.recipes import Recipe, has_builder
from winlab.design.plan import golden, volume_names
from winlab.errors import ConflictError, HostError
from winlab.site import Site
from winlab.supply.images import cache, library
from winlab.supply.images import golden as golden_cache
from winlab.supply.images.library import Item
from winlab.supply.payload import PREFIX


@dataclass(frozen=True)
class Pruned:
    """Something that was removed, or would be: where it was, its name, and its size on the disk in bytes."""

    place: Literal["cache", "pool"]
    name: str
    size: int


@dataclass(frozen=True)
class Kept:
    """A base volume that no lab uses any more, but snapshots: its size in bytes, and theirs as ``LAB@NAME``."""

    name: str
    size: int
    snapshots: tuple[str, ...]


def prune_all(recipes: Iterable[Recipe], site: Site, *, dry_run: bool = False) -> list[Pruned]:
    """Remove what is no longer needed.

    This removes cached images that belong to none of *recipes*, and golden images except the newest of each recipe. It
    also removes base volumes that no volume is based on, also none of a snapshot, and that no machine has in a drive or
    waits for. Images whose builder is not installed stay: it is unknown whether they still match their recipe.

    :param dry_run: remove nothing. What interrupted downloads and builds left is not listed then.
    :returns: what was removed, or would be.
    """
    known, unknown = [], set()
    for recipe in recipes:
        if not has_builder(recipe):
            unknown.add(recipe.name)
        elif recipe.build or recipe.download:
            known.append(recipe)
    kept = {cache.key(recipe) for recipe in known}
    # media cannot be recreated: only the user who added them knows whether they are needed
    made = {one.image.key for one in golden_cache.entries()}
    kept |= {
        image.key
        for image in cache.entries()
        if (not (image.recipe.build or image.recipe.download) and image.key not in made) or image.recipe.name in unknown
    }
    newest = {one.image.recipe.name: one.image.key for one in golden_cache.entries()}  # which comes last
    kept.update(newest.values())
    removed = [
        Pruned("cache", f"{image.recipe.name} {image.key[: library.SHORT]}", image.size)
        for image in cache.entries()
        if image.key not in kept
    ]
    if not dry_run:
        left = cache.prune(kept) - sum(one.size for one in removed)
        if left >= 1 << 20:
            removed.append(Pruned("cache", "what interrupted downloads and builds left", left))
    with ExitStack() as opened:
        try:
            hosts = opened.enter_context(site.storage())
        except HostError:  # a host without libvirt has no volumes to prune
            return removed
        for host in hosts:
            waiting = _one_waits(host.conn)
            removed += _prune_pool(host.pool, partial(domains.files, host.conn), waiting=waiting, dry_run=dry_run)
    return removed


def kept_for_snapshots(site: Site) -> list[Kept]:
    """The base volumes that would be removed if there were no snapshots."""
    found: list[Kept] = []
    with suppress(HostError), site.storage() as hosts:  # a host without libvirt has none
        for host in hosts:
            host.pool.refresh()
            inserted = domains.files(host.conn)
            for name in host.pool.names("base-"):
                users = _users(host.pool, name)
                if users.snapshots and not users.labs and str(host.pool.path(name)) not in inserted:
                    found.append(Kept(name, host.pool.allocation(name), users.snapshots))
    return found


def remove(item: Item, site: Site) -> tuple[int, str]:
    """Remove an image from the cache; a golden image first from the pool, where create would find it.

    :returns: how many bytes of the cache were freed; and, if the pool was not checked, why.
    :raises ConflictError: labs are based on it, or another winlab is using it; it is not removed.
    """
    left = ""
    if item.golden is not None:
        try:
            with site.storage() as hosts:
                for host in hosts:
                    _remove_base(host.pool, golden.base_volume(item.name, item.golden.key))
                left = " ".join(map(str, hosts.silent))
        except HostError as error:
            left = error.what
    return cache.remove(item.image.key), left


def _remove_base(pool: StoragePool, name: str) -> None:
    pool.refresh()
    if not pool.exists(name):
        return
    path = str(pool.path(name))
    _refuse_used(pool, name)
    if not pool.is_complete(name) and not pool.is_abandoned(name):
        raise ConflictError("Another winlab is uploading this image.", cure="Wait until it ends, or interrupt it.")
    if not pool.retire(name, lambda: path in _standing(pool)):
        _refuse_used(pool, name)


def _refuse_used(pool: StoragePool, name: str) -> None:
    labs, snapshots = _users(pool, name)
    if labs or snapshots:
        ways = [f"'winlab destroy --lab {lab}'" for lab in labs] + [
            f"'winlab snapshot delete {one}'" for one in snapshots
        ]
        raise ConflictError(
            "Labs or snapshots are based on this golden image.",
            why=f"They are: {', '.join([*labs, *snapshots])}.",
            cure=f"Remove them first: {', '.join(ways)}.",
        )


class _Users(NamedTuple):
    """What needs a base volume: labs by name, snapshots as ``LAB@NAME``."""

    labs: tuple[str, ...]
    snapshots: tuple[str, ...]


def _users(pool: StoragePool, name: str) -> _Users:
    """What is based on a base volume. Of a frozen disk, that is what is based on it, not the lab that it was of."""
    above, todo, tops = _standing(pool), [name], list[str]()
    while todo:
        for one in above.get(str(pool.path(todo.pop())), ()):
            (todo if str(pool.path(one)) in above else tops).append(one)
    snapshots = {one: "@".join(which) for one in tops if (which := volume_names.snapshot_of(one))}
    labs = {one.split(".")[0] for one in tops if one not in snapshots}
    return _Users(tuple(sorted(labs)), tuple(sorted(set(snapshots.values()))))


def _one_waits(conn: Connection) -> bool:
    """Whether a machine still waits for its payload CD: create uploads that CD long before it is inserted."""
    for machine in domains.machines(conn):
        medium = devices.medium(conn, machine, machine.tag.system.payload_drive[0])
        if medium is None or not medium.name.startswith(PREFIX):
            return True
    return False


def _prune_pool(pool: StoragePool, inserted: Callable[[], set[str]], *, waiting: bool, dry_run: bool) -> list[Pruned]:
    pool.refresh()
    removed: list[Pruned] = []

    def used() -> set[str]:
        return inserted() | _standing(pool).keys()

    def is_used(path: str) -> bool:
        return path in used()

    before = used()
    for name in pool.names("base-"):
        if waiting and name.startswith(PREFIX):
            continue
        if name.endswith(CLAIM):
            base = name.removesuffix(CLAIM)
            if not dry_run and not pool.exists(base) and pool.is_abandoned(base):
                pool.delete(name)
            continue
        if name.endswith(MARKER):
            if not dry_run and not pool.exists(name.removesuffix(MARKER)):
                pool.delete(name)
            continue
        path = str(pool.path(name))
        if path not in before and (pool.is_complete(name) or pool.is_abandoned(name)):
            size = pool.allocation(name)
            if dry_run or pool.retire(name, partial(is_used, path)):
                removed.append(Pruned("pool", name, size))
    return removed


def _standing(pool: StoragePool) -> dict[str, list[str]]:
    """The volumes that are based on others, by the paths of those others."""
    by_base: dict[str, list[str]] = {}
    for name, path in sorted(pool.backings().items()):
        by_base.setdefault(str(path), []).append(name)
    return by_base
