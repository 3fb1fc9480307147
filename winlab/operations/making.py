"""Making machines, for every verb that does: the checks before anything is touched, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from winlab import account
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.addons import recipe as addons
from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Obtained
from winlab.design.plan import cluster
from winlab.design.plan.advice import advice
from winlab.design.plan.model import Plan
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.engine.step import Step
from winlab.errors import ConflictError
from winlab.events import Listener, Note, Told
from winlab.operations import bundle, faults, golden, lock_file, lock_inputs, room
from winlab.operations.carry_out import Underway
from winlab.operations.lock_file import LockedMedium
from winlab.operations.planning import Proposal
from winlab.site import Site
from winlab.steps import amendment as amendments
from winlab.steps import payload, recipe
from winlab.steps.amendment import Amendment
from winlab.steps.golden import all_made
from winlab.steps.payload import Origin
from winlab.supply.images import library

Until = Literal["guests", "cluster"]


@dataclass(frozen=True)
class Making:
    """Machines to make, after everything was checked that needs no lock.

    :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
    :param origin: where Kubernetes' artifacts and downloaded images come from.
    :param consent: missing evaluation media may be downloaded.
    :param check: compares artifacts with the lock file, once they are available.
    :param check_images: compares images with the lock file, once one has arrived.
    """

    proposal: Proposal
    until: Until
    origin: Origin
    consent: bool
    check: Callable[[list[Obtained]], None] | None = None
    check_images: Callable[[], None] | None = None

    def make(
        self,
        under: Underway,
        verb: str,
        record: Callable[[], None],
        *,
        admin: str = "",
        amendment: Amendment = Amendment(),  # noqa: B008 - frozen
    ) -> None:
        """Make what is missing.

        :param verb: what the steps are for.
        :param record: records what the lab is made from, right before the steps.
        :param admin: the kubeconfig of an external cluster, for a plan that joins one.
        :param amendment: what else happens to an existing lab.
        :raises ConflictError: the lab was made from a plan that is neither this one nor of the amendment.
        :raises WinlabError: a check or a step failed.
        """
        plan, hosts, tell = self.proposal.plan, under.hypervisors, under.tell
        refuse_other_plan(plan, hosts, amendment.digests)
        for image in library.imported_for(plan):
            tell(Note(lab=plan.lab, text=f"The image {image.name} ({image.key}) was imported from '{image.imported}'."))
        with ExitStack() as held:
            built = self._golden_images(under, amendment.rebuilt, held)
            room.require_for(plan, hosts, amendment)
            faults.report(plan.lab, under.site, hosts, tell)
            sources = Sources(self.origin.mirror, self.consent, self.check_images)
            run = Run.start(plan, self.proposal.stock, under.site, hosts, sources)
            steps = self._steps(run, tell, built, admin, amendment)
            record()
            under.run(Forecast(run.pace.known, [plan, *built]).steps(recipe.once(steps)), verb)
            faults.forget_over(plan.lab, hosts)
            for builder in built:
                under.site.folder(builder.lab).remove()

    def _golden_images(self, under: Underway, again: Collection[str], held: ExitStack) -> tuple[Plan, ...]:
        """The plans of the golden images that must be built first; their labs stay locked until *held* ends.

        :param again: nodes that are created again.
        """
        plan, hosts, tell = self.proposal.plan, under.hypervisors, under.tell
        if not all_made(plan, hosts, but=again):
            golden.check_evaluation(plan, tell)
        built = golden.lacking(plan, under.site, lambda one: golden.is_there(plan, one, hosts, again), held, tell)
        for sentence in advice(plan) if built else ():
            tell(Note(lab=plan.lab, text=sentence))
        return built

    def _steps(self, run: Run, tell: Listener, built: tuple[Plan, ...], admin: str, amendment: Amendment) -> list[Step]:
        plan, whole = run.plan, self.until == "cluster"
        steps = recipe.guests(run)
        if whole or built:
            settled = not built and not amendment.rebuilt and not amendment.reloaded and payload.has_all(run)
            supply = bundle.supply(plan, self.origin, tell, settled=settled, check=self.check, runs=whole)
        if whole:
            steps += [*recipe.cluster(run, supply, admin), *addons.steps(run, supply)]
        steps += recipe.golden_upload(run, built)
        steps = amendments.compose(run, amendment, steps, cluster=whole)
        if built:
            steps += recipe.golden_build(run, built, supply, alone=not whole)
        return steps


def prepare(
    proposal: Proposal,
    site: Site,
    tell: Listener,
    *,
    until: Until,
    origin: Origin | None,
    consent: bool,
    locked: Path | None = None,
) -> Making:
    """Check everything that needs no lock of the lab, and take images from the user's bundle.

    :param origin: where Kubernetes' artifacts and downloaded images come from; by default whatever is available, and
        the images' own sites.
    :param consent: the user accepted the terms of Microsoft's evaluation media; missing media may be downloaded.
    :param locked: a lock file; anything that differs from it is refused.
    :raises NotFoundError: there is no source for what the lab needs.
    :raises ConflictError: something differs from the lock file.
    """
    plan, stock = proposal.plan, proposal.stock
    for said in _notes(proposal):
        tell(Note(lab=plan.lab, text=said))
    origin = origin or Origin()
    digest = lock_inputs.bundle(origin.bundle) if locked is not None else None
    if locked is not None:
        lock_file.require_bundle(lock_file.read(locked), digest, locked)
    bundle.restore_images(plan, origin, Told(tell, "images of the bundle"))
    consent = consent and origin.bundle is None  # otherwise nothing is downloaded
    golden.check_media(plan, stock, site, consent=consent, offline=origin.bundle is not None)
    checks = _check_lock(proposal, locked, digest) if locked is not None else (None, None)
    return Making(proposal, until, origin, consent, *checks)


def _notes(proposal: Proposal) -> Iterator[str]:
    plan = proposal.plan
    if plan.host.accelerator == "tcg":
        yield "KVM can't be used on this host: guests are emulated, which is slow."
    if said := cluster.version_note(proposal.spec, plan):
        yield said
    yield from rehearsal_notes(plan)


def rehearsal_notes(plan: Plan) -> list[str]:
    """The notes of the stand-ins among the plan's images.

    :raises HostError: their builder is not installed.
    """
    played = [
        one for one in map(recipes.get, sorted({node.image for node in plan.nodes})) if one.stand_in and one.build
    ]
    return list(dict.fromkeys(said for one in played if (said := recipes.builder(one).note(one))))


def _check_lock(
    proposal: Proposal, path: Path, bundle_digest: str | None
) -> tuple[Callable[[list[Obtained]], None], Callable[[], None]]:
    """Compare versions, media, images and the bundle with the lock file now.

    The two functions returned compare artifacts and images once they are available.

    :raises ConflictError: something differs; it is named.
    """
    plan, held = proposal.plan, lock_file.read(path)

    def compare(media: list[LockedMedium]) -> None:
        images, golden_images = lock_inputs.images(plan), lock_inputs.golden(plan, only_imported=True)
        now = lock_file.collect(plan, [], media=media, images=images, golden=golden_images, bundle=bundle_digest)
        lock_file.require(held, now, path, whole=False)

    compare(lock_inputs.media(plan, proposal.stock))

    def check(obtained: list[Obtained]) -> None:
        lock_file.require(held, lock_file.collect(plan, obtained), path, whole=False)

    def check_images() -> None:
        compare(lock_inputs.fetched(plan))

    return check, check_images


def refuse_other_plan(plan: Plan, hosts: Hypervisors, others: Collection[str] = ()) -> None:
    """Check that the lab's machines, if there are any, were made from this plan.

    :param others: the digests of plans that it may be made from, too.
    :raises ConflictError: they were made from another one.
    """
    there = hosts.machines(plan.lab)
    if any(machine.tag.plan not in (plan.digest, *others) for machine in there):
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
