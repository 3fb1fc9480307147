"""Lock a lab: write or update ``winlab.lock``, or compare it with the lab's current inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.events import Listener, Progress
from winlab.operations import bundle, carry_out, lock_file, lock_inputs
from winlab.operations.lock_file import Lock
from winlab.steps.sources import Origin, choose
from winlab.supply.images import cache


@dataclass(frozen=True)
class Renewed:
    """The result for a lock file: whether it was written, what differs from before, and how many inputs it has."""

    path: Path
    written: bool
    changes: list[str]
    inputs: int


def renew(
    plan: Plan,
    stock: Stock,
    tell: Listener,
    *,
    spec: str,
    origin: Origin | None = None,
    path: Path | None = None,
    check: bool = False,
) -> Renewed:
    """Write or update the lock file of a plan; downloads or builds what is not cached.

    :param spec: the spec as the user named it; recorded in the file, which is beside the spec by default.
    :param check: write nothing.
    :raises ConflictError: with *check*, something differs; it is named.
    :raises NotFoundError: with *check*, there is no lock file.
    :raises WinlabError: something can't be obtained, or the file can't be read or written.
    """
    path = path or lock_file.beside(spec)
    before = lock_file.read(path) if check else lock_file.replaced(path)
    work = partial(current, plan, stock, origin or Origin(), spec)
    now = carry_out.one_step("inputs", work, tell, usual=600)
    if check and before is not None:
        lock_file.require(before, now, path)
    changes = lock_file.compare(before, now) if before is not None else []
    written = not check and lock_file.write(path, now)
    return Renewed(path, written, changes, lock_file.count(now))


def current(plan: Plan, stock: Stock, origin: Origin, spec: str, progress: Progress) -> Lock:
    """The lock of the lab's current inputs; downloads or builds what is not cached.

    :param spec: the spec as the user named it.
    :raises WinlabError: as the source says.
    """
    supply, why = choose(plan, origin, runs=False)
    progress.say(why)
    bundle.restore_images(plan, origin, progress)
    for recipe in bundle.recipes(plan):
        if recipe.build is not None:  # only then are its packages known; published images have a digest
            cache.obtain(recipe, progress)
    media = lock_inputs.media(plan, stock)
    obtained = supply.obtain(required.every(plan), progress)
    return lock_file.collect(
        plan,
        obtained,
        media=media,
        images=lock_inputs.images(plan),
        golden=lock_inputs.golden(plan),
        spec=spec,
        source=supply.source.name,
        bundle=lock_inputs.bundle(origin.bundle),
    )
