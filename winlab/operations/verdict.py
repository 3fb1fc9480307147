"""What create would need for a plan, and whether it would be refused. Nothing is touched."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from winlab.adapters.vm import domains, resources
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.addons import recipe as addons
from winlab.design.catalog import recipes
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan, WindowsNode
from winlab.design.plan.stock import Stock
from winlab.design.plan.verdict import Missing, Room, Verdict
from winlab.engine.durations import Forecast
from winlab.engine.run import Run
from winlab.engine.step import Step, compose, planned
from winlab.errors import AccessError, HostError, WinlabError
from winlab.events import ignore
from winlab.history import left
from winlab.history.runs import RunRecord, StepRecord, StepState
from winlab.operations import golden, making
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps import payload, recipe, sources
from winlab.steps.sources import Supply
from winlab.supply.images import cache, windows_media
from winlab.supply.images import golden as golden_cache


def check(proposal: Proposal, site: Site) -> None:
    """Check what create checks before it touches anything, except memory, which :func:`judge` compares.

    Evaluation media that create could download may be missing. If libvirt does not answer, only the plan and its files
    are checked.

    :raises WinlabError: create would be refused.
    """
    making.rehearsal_notes(proposal.plan)
    golden.check_media(proposal.plan, proposal.stock, site, consent=True)
    with suppress(AccessError, HostError), site.hypervisors() as hosts:
        making.check_new(proposal.plan, site.folder(proposal.plan.lab), hosts)
        making.check(proposal.plan, site, hosts, ignore)


def judge(proposal: Proposal, site: Site) -> Verdict:
    """What it takes to make the lab, as far as this can be known now; it never fails."""
    plan, stock = proposal.plan, proposal.stock
    try:
        with site.storage() as hosts:
            rooms = tuple(_rooms(plan, hosts))
            built = [one for one in plan.builders if not golden.is_there(plan, one, hosts)]
            missing = tuple(_missing([plan, *built], stock, hosts))
            run = Run.start(plan, stock, site, hosts)
            try:
                supply, why = sources.choose(plan, sources.ANYWHERE, settled=payload.has_all(run))
            except WinlabError as error:
                return Verdict(missing, refused=error, rooms=rooms)
            if plan.kubernetes is not None and not supply.has(required.every(plan)):
                how: Literal["download", "build"] = "build" if supply.source.name == "build" else "download"
                missing += (Missing(f"Kubernetes {plan.kubernetes.versions.kubernetes}", how, None, 0.0),)
            seconds, estimated = _time(run, built, supply)
            return Verdict(missing, why, None, seconds, estimated, rooms)
    except WinlabError as error:
        built = [one for one in plan.builders if golden_cache.find(str(one.golden)) is None]
        return Verdict(tuple(_missing([plan, *built], stock, None)), unknown=error.what)


def _rooms(plan: Plan, hosts: Hypervisors) -> Iterable[Room]:
    for host in hosts:
        running = {one.uuid for one in host.machines(plan.lab) if one.state not in domains.OFF}
        nodes = [node for node in plan.nodes if node.hypervisor == host.name and node.uuid not in running]
        if nodes:
            has = resources.of(host, plan.lab)
            needed = sum(node.memory_mib for node in nodes), sum(node.disk_mib for node in nodes)
            yield Room(host.name, needed[0], has.free_mib, needed[1], has.pool_free >> 20)


def _missing(plans: Iterable[Plan], stock: Stock, hosts: Hypervisors | None) -> Iterable[Missing]:
    """The images, media and drivers that are neither in a pool nor in the cache, and the golden images to be made.

    :param hosts: None: the pools are not known.
    """
    found: dict[str, Missing] = {}
    first, *builders = plans
    clones = first.clones()

    def needs_image(node: NodePlan) -> bool:
        known = hosts is not None and hosts.on(node).pool.is_complete(node.volume("base").name)
        return node not in clones and not known

    for plan in (first, *builders):
        windows, linux = filter(needs_image, plan.windows_nodes()), filter(needs_image, plan.linux_nodes())
        needed = [*(one for node in windows for one in (_medium(node, stock), _drivers(node))), *map(_image, linux)]
        for one in needed:
            if one is not None:
                found.setdefault(one.what, one)
    yield from found.values()
    for builder in builders:
        (node,) = builder.windows_nodes()
        yield Missing(f"golden image of {node.image}", "build", None, 0.0)


def _medium(node: WindowsNode, stock: Stock) -> Missing | None:
    image = recipes.get(node.image)
    if image.build is not None:
        return _image(node)
    if windows_media.at_hand(node, stock) is not None or not image.evaluations:
        return None
    medium = image.evaluations[0]
    return Missing(f"{node.image} evaluation medium", "download", medium.size, image.usual_seconds)


def _drivers(node: WindowsNode) -> Missing | None:
    if not windows_media.takes_published(node.windows) or windows_media.published().exists():
        return None
    drivers = recipes.get(windows_media.DRIVERS)
    size = drivers.download.size if drivers.download else None
    return Missing("virtio drivers", "download", size, drivers.usual_seconds)


def _image(node: NodePlan) -> Missing | None:
    image = recipes.get(node.image)
    if cache.lookup(image) is not None:
        return None
    if image.download is not None:
        return Missing(f"image {image.name}", "download", image.download.size, image.usual_seconds)
    return Missing(f"image {image.name}", "build", None, image.usual_seconds)


def _time(run: Run, built: list[Plan], supply: Supply) -> tuple[float, bool]:
    """How long create takes, in seconds, from how long its steps take; and whether some of that is an estimate."""
    steps: list[Step] = [*recipe.guests(run), *recipe.cluster(run, supply), *addons.steps(run, supply)]
    steps += recipe.golden_upload(run, built)
    if built:
        steps += recipe.golden_build(run, built, supply, alone=False)
    order = compose(Forecast(run.pace.known, [run.plan, *built]).steps(recipe.once(steps)))
    record = RunRecord(1, steps=[StepRecord(number, one) for number, one in enumerate(planned(order), 1)])
    for step, one in zip(order, record.steps, strict=True):
        if not step.reaches.lab and step.done():  # what labs share may be there already
            one.state = StepState.SKIPPED
    waiting = [one for one in record.steps if one.state is StepState.WAITING]
    return left.seconds(record, 0.0), any(one.planned.estimated for one in waiting)
