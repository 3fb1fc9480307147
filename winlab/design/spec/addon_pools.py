"""The pools that add-ons request, beside those of the spec. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError

from winlab.design import addon
from winlab.design.addon import AddonSettings
from winlab.design.catalog import recipes
from winlab.design.spec.pools import LINUX_POOL, Pool
from winlab.design.spec.systems import system
from winlab.errors import UsageError

Requested = Mapping[str, tuple[Pool, ...]]  # by add-on


def pools(settings: Mapping[str, AddonSettings]) -> Requested:
    """The pools that the add-ons with these settings request.

    :raises ValueError: an add-on requests what can't be a pool; the message begins with its place in the spec.
    """
    return {name: tuple(_pools(name, one)) for name, one in settings.items()}


def check_names(requested: Requested, spec: Iterable[str]) -> None:
    """Check that all pools have different names.

    :param spec: the names of the spec's own pools.
    :raises ValueError: two pools have one name; the message begins with the place of the add-on in the spec.
    """
    taken = dict.fromkeys(spec, "")  # by name: the add-on that has the pool
    for name, pool in each(requested):
        if pool.name == LINUX_POOL:
            reason = "that is what linux_workers are called; only the add-on's authors can change it: leave it out"
        elif pool.name not in taken:
            taken[pool.name] = name
            continue
        elif taken[pool.name] == name:
            reason = "it requests two such pools; change its settings, or leave it out"
        elif taken[pool.name]:
            reason = f"the add-on '{taken[pool.name]}' has such a pool; leave one of the two out"
        else:
            reason = "the spec has such a pool; give that one another name"
        raise ValueError(f"addons.{name}: the add-on '{name}' can't have a pool called '{pool.name}': {reason}")


def check_rehearsal(requested: Requested) -> None:
    """Check that a rehearsal gets no real Windows: an add-on itself chooses the system of its machines.

    :raises UsageError: an add-on requests a real Windows.
    """
    for name, pool in each(requested):
        if system(pool.os).build is None and recipes.stand_ins(system(pool.os)):
            raise UsageError(
                f"The add-on '{name}' can't be rehearsed.",
                why=f"It requests machines with {pool.os}, and --rehearse changes only the spec's own pools.",
                cure="Set its image to windows-rehearsal, if it has such a setting; otherwise leave it out.",
            )


def each(requested: Requested) -> Iterator[tuple[str, Pool]]:
    """Every pool with the add-on that requests it."""
    for name, pools in requested.items():
        for pool in pools:
            yield name, pool


def _pools(name: str, settings: AddonSettings) -> Iterator[Pool]:
    place = f"addons.{name}: the add-on '{name}' requests machines that can't be"
    cure = "change its settings, or leave it out"
    try:
        pools = list(addon.registry()[name].machines(settings))
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, one['loc']))}: {_plain(one['msg'])}" for one in error.errors())
        raise ValueError(f"{place}: {why}; {cure}") from error
    for pool in pools:
        if not isinstance(pool, Pool):
            raise ValueError(
                f"{place}: {pool!r} is not a winlab.addons.api.Pool; {cure}"
            )  # pydantic does not explain a TypeError
        yield pool


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ")
