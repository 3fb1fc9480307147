"""Golden images as a whole: which ones a plan needs, how it gets them, and building one by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress

from winlab.adapters import traces
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.cni import compatible
from winlab.design.plan import golden as golden_plan
from winlab.design.plan.lab_name import GOLDEN
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.design.render.topology import topology
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.errors import ConflictError, UsageError, WinlabError, together
from winlab.events import Listener, Note, Told
from winlab.lab_folder import LabFolder
from winlab.operations import bundle
from winlab.operations.carry_out import Job, Underway, carry_out, hold, require_idle
from winlab.site import Site
from winlab.steps import recipe, sources
from winlab.steps.golden import NOTE, all_made, is_spoiled
from winlab.steps.sources import Origin
from winlab.supply.images import golden as golden_cache
from winlab.supply.images import library, requirements

WANTED_BY = "wanted-by"  # in a builder's folder: the lab whose create began it
SOON = 14  # days: an evaluation that ends within them is reported


def is_there(plan: Plan, builder: Plan, hosts: Hypervisors, but: Collection[str] = ()) -> bool:
    """Whether *builder* need not run: its golden image is in the pools or the cache, or *plan* already has all of its
    clones. These may be based on an earlier image.

    :param but: nodes that are created again, though they exist now.
    """
    clones = plan.clones(builder.golden)
    volume = clones[0].volume("base").name
    if all(hosts.on(node).pool.is_complete(volume) for node in clones) or golden_cache.find(_key(builder)) is not None:
        return True
    return all_made(plan, hosts, builder.golden, but)


def _key(builder: Plan) -> str:
    assert builder.golden is not None
    return builder.golden


def check_media(plan: Plan, stock: Stock, site: Site, *, consent: bool = False, offline: bool = False) -> None:
    """Check that the media are available that Windows must be installed from, if it must be installed.

    :param offline: everything must come from a bundle, and nothing from the internet.
    :raises WinlabError: a medium is missing or not what it should be; nothing was touched.
    """
    clones = plan.clones()
    others = tuple(node for node in plan.nodes if node not in clones)
    requirements.check(plan.model_copy(update={"nodes": others}), stock, consent=consent, offline=offline)
    for builder in plan.builders:
        made = golden_cache.find(_key(builder))
        if made is not None:
            (node,) = builder.windows_nodes()
            if node.is_member:
                build = made.facts["build"]
                compatible.check(plan.cluster.versions, node.windows.release, build, plan.cluster.profile)
            continue
        try:
            requirements.check(builder, stock, consent=consent, offline=offline)
        except WinlabError:
            if not _is_settled(plan, builder, site):
                raise


def check_evaluation(plan: Plan, tell: Listener) -> None:
    """Check that the golden images' evaluations have not expired, and report those that expire soon.

    Nothing is known about an image that is only in the pool.

    :raises UsageError: one has expired; nothing was touched.
    """
    for builder in plan.builders:
        made = golden_cache.find(_key(builder))
        if made is None or made.days_left is None:
            continue
        key = made.image.key[: library.SHORT]
        again = f"Run 'winlab image rm {key}' and then the same command again: it makes a new image."
        if made.days_left < 0:
            raise UsageError(
                f"The evaluation of Windows in the golden image {key} has expired.",
                why=f"It expired at {made.facts['evaluation_ends']}, and its clones expired with it.",
                cure=again,
            )
        if made.days_left < SOON:
            text = f"The evaluation of Windows in the golden image {key} expires in {made.days_left} days. {again}"
            tell(Note(lab=plan.lab, text=text))


def _is_settled(plan: Plan, builder: Plan, site: Site) -> bool:
    with suppress(WinlabError), site.storage() as hosts:  # otherwise it is not known, and a plan needs no libvirt
        return is_there(plan, builder, hosts)
    return False


def lacking(
    plan: Plan, site: Site, present: Callable[[Plan], bool], held: ExitStack, tell: Listener
) -> tuple[Plan, ...]:
    """The plans of the labs in which golden images must be made; empty if none are needed.

    If another winlab is making one of them, this waits for it. The locks stay in *held*. The remains of a machine that
    lost power while sysprep ran are removed.

    :param present: whether the image that a builder makes is where it is needed.
    :raises WinlabError: that machine can't be removed.
    """
    placed: dict[str, Plan] = {}
    for builder in sorted(plan.builders, key=lambda one: one.lab):  # always in the same order, to avoid a deadlock
        if present(builder):
            continue
        folder = site.folder(builder.lab)
        hold(folder, held, Told(tell, "golden image"), "making this golden image")
        if present(builder):
            continue
        _remove_spoiled(builder, folder, site, tell)
        folder.write(folder.path / WANTED_BY, plan.lab)
        placed[builder.lab] = _placed(plan, builder, site)
    return tuple(placed[builder.lab] for builder in plan.builders if builder.lab in placed)


def _remove_spoiled(builder: Plan, folder: LabFolder, site: Site, tell: Listener) -> None:
    """Remove a machine that may be half generalized, so that the image is made from scratch; the caller holds the lock.

    The note goes last: if this is interrupted, the next command finds it and resumes.
    """
    note = folder.path / NOTE
    if not note.exists():  # nearly always: the hypervisor need not be asked
        return
    (machine,) = builder.windows_nodes()
    with site.hypervisors() as hosts:
        if not is_spoiled(folder, hosts.on(machine).conn, machine):
            return
        text = (
            f"The machine of {builder.lab} ended while sysprep ran in it. It may be half generalized, so winlab makes "
            "a new one."
        )
        tell(Note(lab=builder.lab, text=text))
        if problems := traces.remove(builder.lab, hosts, site.overlay, lambda *_: None):
            raise together(problems)
    note.unlink(missing_ok=True)


def _placed(plan: Plan, builder: Plan, site: Site) -> Plan:
    """The builder with external addresses that no other lab has: those of an interrupted build, otherwise free ones."""
    with site.overlay() as northbound:
        standing = northbound.lab_plan(builder.lab)
        places = list(golden_plan.elsewhere(plan, builder))
        if standing is not None and (same := next((one for one in places if one.digest == standing), None)):
            return same
        return next((one for one in places if northbound.holder(topology(one)) is None), builder)


def build(
    plan: Plan, stock: Stock, site: Site, tell: Listener, origin: Origin, *, consent: bool = False
) -> golden_cache.Golden:
    """Make the golden image of a plan with one pool of Windows nodes, unless it is cached.

    :raises WinlabError: a medium or source is missing (nothing was touched then), or a step failed.
    """
    if len(plan.builders) != 1:
        raise UsageError(
            "A golden image is made for one pool of Windows nodes, which clone it.",
            cure="Use a spec without workers.golden and without a list of pools.",
        )
    (builder,) = plan.builders
    key = _key(builder)
    bundle.restore_images(builder, origin, Told(tell, "images of the bundle"))
    check_media(plan, stock, site, consent=consent, offline=origin.bundle is not None)
    check_evaluation(plan, tell)

    def work(under: Underway) -> None:
        for placed in lacking(plan, site, lambda _: golden_cache.find(key) is not None, under.held, tell):
            source = bundle.report(plan, *sources.choose(plan, origin, runs=False), origin, tell, made=placed)
            run = Run.start(plan, stock, site, under.hypervisors, Sources(origin.mirror, consent))
            steps = recipe.once(recipe.golden_build(run, [placed], source, alone=True))
            under.run(Forecast(run.pace.known, [placed]).steps(steps), "image build")
            under.folder.remove()

    carry_out(Job(builder.lab, work, locks=False), site, tell)  # lacking() locks it: another winlab may be making it
    image = golden_cache.find(key)
    assert image is not None
    return image


def _wanted_by(folder: LabFolder) -> str:
    """The lab whose create began an image; empty if unknown: the folder is another user's, or damaged."""
    try:
        return (folder.path / WANTED_BY).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


def abandon(lab: str, site: Site, destroy: Callable[[str], object], keep: Collection[str] = ()) -> None:
    """Remove half-made golden images that this lab's create began and no one is working on now, except *keep*."""
    for other in site.folders():
        folder = site.folder(other)
        if other in keep or not other.startswith(GOLDEN) or _wanted_by(folder) != lab:
            continue
        with suppress(ConflictError):
            require_idle(folder)
            destroy(other)
