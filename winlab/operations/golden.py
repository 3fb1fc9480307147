"""Golden images as a whole: what a plan needs of them, how it gets them, and building one by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from winlab import locks
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import Pool
from winlab.design.cni import compatible
from winlab.design.plan.golden import LAB as GOLDEN
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.engine import engine
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.errors import ConflictError, HostError, UsageError, WinlabError
from winlab.events import Listener, Note, Progress, Told
from winlab.operations import bundle
from winlab.site import Site
from winlab.steps import payload, recipe
from winlab.steps.golden import all_made, clone
from winlab.steps.payload import Origin
from winlab.supply.images import golden as golden_cache
from winlab.supply.images import library, requirements

WANTED_BY = "wanted-by"  # in a builder's folder: the lab whose create began it
SOON = 14  # days: an evaluation that ends within them is told of


def is_there(plan: Plan, pool: Pool, conn: Connection) -> bool:
    """Whether the golden image that the plan's nodes are clones of is in the pool or in the cache; or all of them are
    made already, from whichever one it was then."""
    node = clone(plan)
    assert node is not None
    assert node.windows is not None
    if pool.is_complete(node.volume("base").name) or golden_cache.find(str(node.windows.golden)) is not None:
        return True
    return all_made(plan, conn)


def check_media(plan: Plan, stock: Stock, site: Site, *, consent: bool = False, offline: bool = False) -> None:
    """See that the media can be had from which Windows will have to be installed, if it has to be.

    :param offline: everything is to come from a bundle, and nothing from the internet.
    :raises WinlabError: a medium is missing or not what it should be; nothing was touched.
    """
    if plan.builder is None:
        requirements.check(plan, stock, consent=consent, offline=offline)
        return
    node = clone(plan)
    if node is None or node.windows is None:
        return
    made = golden_cache.find(str(node.windows.golden))
    if made is not None:
        compatible.check(plan.cluster.versions, node.windows.release, made.facts["build"], plan.cluster.profile)
        return
    try:
        requirements.check(plan.builder, stock, consent=consent, offline=offline)
    except WinlabError:
        if not _is_settled(plan, site):
            raise


def check_evaluation(plan: Plan, tell: Listener) -> None:
    """See that the evaluation of the golden image goes on, and tell if not for long. Of one that is in the pool alone
    nothing is known.

    :raises UsageError: it is over; nothing was touched.
    """
    node = clone(plan)
    made = None if node is None or node.windows is None else golden_cache.find(str(node.windows.golden))
    if made is None or made.days_left is None:
        return
    key = made.image.key[: library.SHORT]
    anew = f"Run 'winlab image rm {key}' and the same command again: it makes a new one."
    if made.days_left < 0:
        raise UsageError(
            f"The evaluation of Windows in the golden image {key} is over.",
            why=f"It ended at {made.facts['evaluation_ends']}, and its clones' ends with it.",
            cure=anew,
        )
    if made.days_left < SOON:
        text = f"The evaluation of Windows in the golden image {key} ends in {made.days_left} days. {anew}"
        tell(Note(lab=plan.lab, text=text))


def _is_settled(plan: Plan, site: Site) -> bool:
    try:
        with site.storage() as (conn, pool):
            return is_there(plan, pool, conn)
    except HostError:
        return False


def lacking(plan: Plan, site: Site, present: Callable[[], bool], held: ExitStack, progress: Progress) -> Plan | None:
    """The plan of the lab in which the golden image has to be made; None if nothing has to be.

    Another winlab that makes it is waited for. The lock stays in *held*.

    :param present: whether the image is where it is needed.
    """
    if plan.builder is None or present():
        return None
    folder = site.folder(plan.builder.lab)
    held.enter_context(locks.held(_lock(plan.builder.lab, site), progress, "making this golden image"))
    if present():
        return None
    folder.write(folder.folder / WANTED_BY, plan.lab)
    return plan.builder


def _lock(lab: str, site: Site) -> Path:
    """Held while a golden image is made. Beside the builder's folder, which goes when it is done."""
    base = site.folder(lab).folder.parent
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    return base / f"{lab}.lock"


def build(
    plan: Plan, stock: Stock, site: Site, tell: Listener, origin: Origin, *, consent: bool = False
) -> golden_cache.Golden:
    """Make the golden image of the plan's Windows nodes, unless it is in the cache.

    :raises WinlabError: a medium or source is missing (nothing was touched then), or a step failed.
    """
    node = clone(plan)
    assert node is not None
    assert node.windows is not None
    key = str(node.windows.golden)
    assert plan.builder is not None
    offline = origin.bundle is not None
    if origin.bundle is not None:
        bundle.restore_images(plan.builder, origin.bundle, Told(tell, "images of the bundle"))
    check_media(plan, stock, site, consent=consent, offline=offline)
    check_evaluation(plan, tell)
    with site.connected() as conn, ExitStack() as held:
        builder = lacking(plan, site, lambda: golden_cache.find(key) is not None, held, Told(tell, "golden image"))
        if builder is not None:
            source, why = payload.choose(plan, origin)
            if source.bundle is not None and not offline:
                bundle.restore_lacking(builder, source.bundle, Told(tell, "images of the bundle"))
            tell(Note(lab=plan.lab, text=f"Kubernetes {plan.cluster.versions.kubernetes} comes from {why}"))
            fetch = consent and not offline
            run = Run.start(plan, stock, site, conn, Sources(origin.mirror, fetch))
            forecast = Forecast(run.pace.known, [builder])
            steps = recipe.once(recipe.golden_build(run, [builder], source, alone=True))
            engine.run(forecast.steps(steps), tell, builder.lab)
            site.folder(builder.lab).remove()
    image = golden_cache.find(key)
    assert image is not None
    return image


def abandon(lab: str, site: Site, destroy: Callable[[str], object]) -> None:
    """Remove half-made golden images that this lab's create began, and that nobody is making now."""
    for other in site.folders():
        folder = site.folder(other).folder
        note = folder / WANTED_BY
        if not other.startswith(GOLDEN) or not note.exists() or note.read_text(encoding="utf-8").strip() != lab:
            continue
        with locks.attempt(_lock(other, site)) as mine:
            if mine:
                with suppress(ConflictError):
                    destroy(other)
