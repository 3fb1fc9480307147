"""Making machines, for every verb that does: the checks before anything is touched, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from winlab import account
from winlab.adapters import traces
from winlab.adapters.vm import domains
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.addons import recipe as addons
from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Obtained
from winlab.design.plan import cluster
from winlab.design.plan.advice import advice, small_controllers
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.engine.step import Step
from winlab.errors import ConflictError
from winlab.events import Listener, Note, Told
from winlab.lab_folder import LabFolder
from winlab.operations import bundle, faults, golden, lock_file, lock_inputs, recorded, room
from winlab.operations.carry_out import Job, Underway
from winlab.operations.lock_file import LockedMedium
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps import amendment as amendments
from winlab.steps import payload, recipe, sources
from winlab.steps.amendment import Amendment
from winlab.steps.golden import all_made
from winlab.steps.sources import Origin
from winlab.supply.images import cache, library

Until = Literal["guests", "cluster"]


@dataclass(frozen=True)
class Making:
    """Machines to make. All that needs no lock was checked.

    :param verb: what is done, for the journal.
    :param admin: the kubeconfig of the external cluster that the plan joins.
    :param check: compares artifacts with the lock file, once they are available.
    """

    verb: str
    proposal: Proposal
    until: Until
    origin: Origin
    sources: Sources
    admin: str = ""
    check: Callable[[list[Obtained]], None] | None = None

    def new_lab(self) -> Job[None]:
        """The job that makes a lab which has nothing to change, or resumes that."""
        plan = self.proposal.plan

        def record(under: Underway) -> None:
            # without credentials, machines that exist are another account's
            if under.folder.credentials_fit(plan) or not under.hypervisors.machines(plan.lab):
                recorded.write(under.folder, self.proposal)

        def work(under: Underway) -> None:
            check_new(plan, under.folder, under.hypervisors)
            self.make(under, Amendment(), partial(record, under))

        return Job(plan.lab, work, storage=True)

    def make(self, under: Underway, amendment: Amendment, record: Callable[[], None]) -> None:
        """Make what is missing, after what the amendment changes.

        :param record: records what the lab is made from, before the first step.
        :raises WinlabError: a check or a step failed.
        """
        plan, hosts, tell = self.proposal.plan, under.hypervisors, under.tell
        check(plan, under.site, hosts, tell, but=amendment.rebuilt)
        for image in library.imported_for(plan):
            tell(Note(lab=plan.lab, text=f"The image {image.name} ({image.key}) was imported from '{image.imported}'."))
        is_there = partial(golden.is_there, plan, hosts=hosts, but=amendment.rebuilt)
        built = golden.lacking(plan, under.site, is_there, under.held, tell)
        refuse_taken_names(built, hosts)
        for sentence in advice(plan) if built else ():
            tell(Note(lab=plan.lab, text=sentence))
        room.require_for(plan, hosts, amendment)
        faults.report(plan.lab, under.site, hosts, tell)
        run = Run.start(plan, self.proposal.stock, under.site, hosts, self.sources)
        steps = self._steps(run, built, amendment, tell)
        record()
        under.run(Forecast(run.pace.known, [plan, *built]).steps(recipe.once(steps)), self.verb)
        faults.forget_over(plan.lab, hosts)
        for builder in built:
            under.site.folder(builder.lab).remove()

    def _steps(self, run: Run, built: Sequence[Plan], amendment: Amendment, tell: Listener) -> list[Step]:
        """All steps, also those that build golden images; their source is decided here, before anything is touched."""
        plan, whole = run.plan, self.until == "cluster"
        steps = recipe.guests(run)
        if whole or built:
            settled = not built and not amendment.rebuilt and not amendment.reloaded and payload.has_all(run)
            chosen = sources.choose(plan, self.origin, settled=settled, check=self.check, runs=whole)
            supply = bundle.report(plan, *chosen, self.origin, tell)
        if whole:
            steps += [*recipe.cluster(run, supply, self.admin), *addons.steps(run, supply)]
        steps = amendments.compose(run, amendment, [*steps, *recipe.golden_upload(run, built)], cluster=whole)
        return [*steps, *(recipe.golden_build(run, built, supply, alone=not whole) if built else ())]


def prepare(
    verb: str,
    proposal: Proposal,
    site: Site,
    tell: Listener,
    *,
    until: Until = "cluster",
    origin: Origin | None = None,
    consent: bool = False,
    locked: Path | None = None,
    admin: str = "",
) -> Making:
    """Check what needs no lock of the lab, and take images from the user's bundle.

    Parameters are those of :func:`winlab.operations.create.create` and of :class:`Making`.

    :raises AccessError: this user can't have a cache.
    :raises NotFoundError: there is no source for what the lab needs.
    :raises ConflictError: something differs from the lock file.
    """
    plan, stock = proposal.plan, proposal.stock
    cache.require()
    if slow := [name for name, facts in plan.hypervisors.items() if facts.accelerator == "tcg"]:
        where = f"on {', '.join(slow)}" if plan.hosts else "on this host"
        tell(Note(lab=plan.lab, text=f"KVM can't be used {where}: guests are emulated, which is slow.", repeats=True))
    for said in (cluster.version_note(proposal.spec, plan), *rehearsal_notes(plan)):
        if said:
            tell(Note(lab=plan.lab, text=said, repeats=True))
    for said in small_controllers(plan) if until == "cluster" else ():
        tell(Note(lab=plan.lab, text=said))
    origin = origin or Origin()
    if locked is not None:
        lock_file.require_bundle(lock_file.read(locked), lock_inputs.bundle(origin.bundle), locked)
    bundle.restore_images(plan, origin, Told(tell, "images of the bundle"))
    golden.check_media(plan, stock, site, consent=consent, offline=origin.bundle is not None)
    check, check_images = (
        _check_lock(plan, stock, locked, lock_inputs.bundle(origin.bundle)) if locked is not None else (None, None)
    )
    return Making(verb, proposal, until, origin, Sources(origin.mirror, consent, check_images), admin, check)


def rehearsal_notes(plan: Plan) -> list[str]:
    """The notes of the stand-ins among the plan's images.

    :raises HostError: their builder is not installed.
    """
    images = map(recipes.get, sorted({node.image for node in plan.nodes}))
    played = [image for image in images if image.stand_in and image.build]
    return list(dict.fromkeys(said for one in played if (said := recipes.builder(one).note(one))))


def _check_lock(
    plan: Plan, stock: Stock, path: Path, bundle_digest: str | None
) -> tuple[Callable[[list[Obtained]], None], Callable[[], None]]:
    """Compare versions, media, images and the bundle with the lock file now.

    The two functions returned compare artifacts and images once they are available.

    :raises ConflictError: something differs; it is named.
    """
    held = lock_file.read(path)

    def compare(media: list[LockedMedium]) -> None:
        images, golden_images = lock_inputs.images(plan), lock_inputs.golden(plan, only_imported=True)
        now = lock_file.collect(plan, [], media=media, images=images, golden=golden_images, bundle=bundle_digest)
        lock_file.require(held, now, path, whole=False)

    compare(lock_inputs.media(plan, stock))

    def check(obtained: list[Obtained]) -> None:
        lock_file.require(held, lock_file.collect(plan, obtained), path, whole=False)

    def check_images() -> None:
        compare(lock_inputs.fetched(plan))

    return check, check_images


def check_new(plan: Plan, folder: LabFolder, hosts: Hypervisors) -> None:
    """Check that there is no lab of the plan's name, or one that was made from it, so that it can be resumed.

    :raises ConflictError: there is another one, or a change of it was interrupted.
    """
    recorded.refuse_unfinished(folder)
    refuse_other_plan(plan, hosts)


def check(plan: Plan, site: Site, hosts: Hypervisors, tell: Listener, but: Collection[str] = ()) -> None:
    """Check that the plan's machines are not someone else's, and that Windows has not expired.

    :param but: nodes that are created again, though they exist now.
    :raises ConflictError: another user has begun the lab, or another domain has a machine's name.
    :raises UsageError: the evaluation of Windows in a golden image has expired.
    """
    refuse_begun_by_others(plan.lab, site, hosts)
    refuse_taken_names([plan], hosts)
    if not all_made(plan, hosts, but=but):
        golden.check_evaluation(plan, tell)


def refuse_other_plan(plan: Plan, hosts: Hypervisors) -> None:
    """Check that the lab's machines, if there are any, were made from this plan.

    :raises ConflictError: they were made from another one.
    """
    there = hosts.machines(plan.lab)
    places = {node.uuid: node.hypervisor for node in plan.nodes}
    for machine in there:
        if (place := places.get(machine.uuid, machine.hypervisor)) != machine.hypervisor:
            node = machine.tag.node
            raise ConflictError(
                f"'{node}' of the lab '{plan.lab}' is on '{machine.hypervisor}', and is to be on '{place}'.",
                cure=f"Move it with 'winlab move {node} {place} --lab {plan.lab}', or plan it where it is.",
            )
    if any(machine.tag.plan != plan.digest for machine in there):
        why = f"It has the nodes {', '.join(machine.tag.node for machine in there)}."
        if owner := account.others([machine.tag.uid for machine in there]):
            raise ConflictError(
                f"There is already a lab '{plan.lab}', and it belongs to {owner}.",
                why=why,
                cure=f"Give your own lab another name: --lab NAME, or WINLAB_LAB. Or ask {owner} to remove that one.",
            )
        raise ConflictError(
            f"There is already a lab '{plan.lab}', made from another spec or by another version of winlab.",
            why=why,
            cure=f"'winlab diff --lab {plan.lab}' with the same spec says what differs, and 'winlab apply' changes it. "
            f"Or run 'winlab destroy --lab {plan.lab}' first, or give the new lab another name with --lab.",
        )


def refuse_begun_by_others(lab: str, site: Site, hosts: Hypervisors) -> None:
    """Check that no other user has begun the lab: both would write the same volumes. Its network says whose it is.

    A lab with machines is recognized by them.

    :raises ConflictError: one has.
    """
    if not hosts.machines(lab) and (owner := traces.others(lab, hosts, site.overlay)):
        raise ConflictError(
            f"There is already a lab '{lab}', and it belongs to {owner}.",
            why="It has a network and no machines yet: it is being made, or its creation was interrupted.",
            cure=f"Give your own lab another name: --lab NAME, or WINLAB_LAB. Or ask {owner} to remove that one.",
        )


def refuse_taken_names(plans: Iterable[Plan], hosts: Hypervisors) -> None:
    """Check that no other domain has the name of one of the plans' machines.

    :raises ConflictError: one has.
    """
    for plan in plans:
        for node in plan.nodes:
            domains.tag_of(hosts.on(node).conn, node)
