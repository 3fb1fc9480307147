"""Create a lab, or resume one: every check runs before anything is touched, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

from winlab import account
from winlab.adapters import traces
from winlab.adapters.vm import domains
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors
from winlab.addons import recipe as addons
from winlab.design.catalog import recipes
from winlab.design.catalog.artifact import Obtained
from winlab.design.plan import cluster
from winlab.design.plan.advice import advice
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.engine import engine
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.errors import ConflictError, HostError
from winlab.events import Listener, Note, Told
from winlab.operations import bundle, faults, golden, lock_file, lock_inputs, recorded
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


def create(
    proposal: Proposal,
    site: Site,
    tell: Listener,
    *,
    until: Until = "cluster",
    origin: Origin | None = None,
    locked: Path | None = None,
    admin: str = "",
    consent: bool = False,
    amend: Callable[[Hypervisors], Amendment] | None = None,
) -> None:
    """Create the lab, or resume it; what exists is changed only as *amend* says.

    :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
    :param origin: where Kubernetes' artifacts and downloaded images come from; by default whatever is available, and
        the images' own sites.
    :param locked: a lock file; anything that differs from it is refused.
    :param admin: the kubeconfig of an external cluster, for a plan that joins one.
    :param consent: the user accepted the terms of Microsoft's evaluation media; missing media may be downloaded.
    :param amend: decides how the existing lab is changed to match the proposal, before anything is touched.
    :raises NotFoundError: there is no source for what the lab needs; nothing was touched.
    :raises ConflictError: a lab of that name was made from another plan or is being changed, another winlab is
        working on it, or a domain that is not the lab's has a machine's name.
    :raises WinlabError: a step failed.
    """
    plan, stock = proposal.plan, proposal.stock
    if plan.host.accelerator == "tcg":
        tell(Note(lab=plan.lab, text="KVM can't be used on this host: guests are emulated, which is slow."))
    if said := cluster.version_note(proposal.spec, plan):
        tell(Note(lab=plan.lab, text=said))
    for said in rehearsal_notes(plan):
        tell(Note(lab=plan.lab, text=said))
    folder = site.folder(plan.lab)
    origin = origin or Origin()
    if locked is not None:
        lock_file.require_bundle(lock_file.read(locked), lock_inputs.bundle(origin.bundle), locked)
    if origin.bundle is not None:
        bundle.restore_images(plan, origin.bundle, origin.bundle_digest, Told(tell, "images of the bundle"))
        consent = False  # nothing is downloaded then
    golden.check_media(plan, stock, site, consent=consent, offline=origin.bundle is not None)
    check, check_images = (
        _check_lock(plan, stock, locked, lock_inputs.bundle(origin.bundle)) if locked is not None else (None, None)
    )
    with site.storage() as hosts, folder.locked(), ExitStack() as held:
        tell = folder.journaled(tell)
        amendment = amend(hosts) if amend is not None else None
        if amendment is None:
            recorded.refuse_unfinished(folder)
        refuse_other_plan(plan, hosts, amendment.digests if amendment is not None else frozenset())
        refuse_others_network(plan.lab, site, hosts)
        refuse_taken_names([plan], hosts)
        again = amendment.rebuilt if amendment is not None else frozenset[str]()
        for image in library.imported_for(plan):
            tell(Note(lab=plan.lab, text=f"The image {image.name} ({image.key}) was imported from '{image.imported}'."))
        if not all_made(plan, hosts, but=again):
            golden.check_evaluation(plan, tell)
        built = golden.lacking(plan, site, lambda one: golden.is_there(plan, one, hosts, again), held, tell)
        refuse_taken_names(built, hosts)
        for sentence in advice(plan) if built else ():
            tell(Note(lab=plan.lab, text=sentence))
        check_memory(plan, hosts, amendment or Amendment())
        if said := faults.sentence(plan.lab, site, hosts):
            tell(Note(lab=plan.lab, text=said))
        run = Run.start(plan, stock, site, hosts, Sources(origin.mirror, consent, check_images))
        steps = recipe.guests(run)
        if until == "cluster" or built:
            whole = not built and not again and (amendment is None or not amendment.reloaded)
            source, why = payload.choose(
                plan, origin, settled=whole and payload.has_all(run), check=check, runs=until == "cluster"
            )
            if source.bundle is not None and origin.bundle is None:
                bundle.restore_lacking(plan, source.bundle, Told(tell, "images of the bundle"))
            if plan.kubernetes is not None:
                text = f"Kubernetes {plan.kubernetes.versions.kubernetes} comes from {why}"
                tell(Note(lab=plan.lab, text=text))
        if until == "cluster":
            steps += [*recipe.cluster(run, source, admin), *addons.steps(run, source)]
        steps += recipe.golden_upload(run, built)
        if amendment is not None:
            steps = amendments.compose(run, amendment, steps, cluster=until == "cluster")
        if built:
            steps += recipe.golden_build(run, built, source, alone=until != "cluster")

        if amendment is None:
            if folder.credentials_fit(plan) or not hosts.machines(plan.lab):  # otherwise it is another account's
                recorded.write(folder, proposal)
        else:
            recorded.begin(folder, proposal, sorted(amendment.rebuilt))
        forecast = Forecast(run.pace.known, [plan, *built])
        verb = "apply" if amendment is not None else "join" if admin else "create"
        engine.run(forecast.steps(recipe.once(steps)), tell, plan.lab, verb)
        faults.forget_over(plan.lab, hosts)
        if amendment is not None:
            if until != "cluster" and amendment.reloaded and folder.has(folder.kubeconfig):
                # prepared nodes import no images by themselves: the record must say that this is still to be done
                text = f"New images are not in the nodes yet: 'winlab apply --lab {plan.lab}' finishes the change."
                tell(Note(lab=plan.lab, text=text))
            else:
                recorded.write(folder, proposal)
        for builder in built:
            site.folder(builder.lab).remove()


def rehearsal_notes(plan: Plan) -> list[str]:
    """The notes of the stand-ins among the plan's images.

    :raises HostError: their builder is not installed.
    """
    played = [
        one for one in map(recipes.get, sorted({node.image for node in plan.nodes})) if one.stand_in and one.build
    ]
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


def refuse_other_plan(plan: Plan, hosts: Hypervisors, others: Collection[str] = ()) -> None:
    """Check that the lab's machines, if there are any, were made from this plan.

    :param others: the digests of plans that it may be made from, too.
    :raises ConflictError: they were made from another one.
    """
    there = hosts.machines(plan.lab)
    if any(machine.tag.plan not in (plan.digest, *others) for machine in there):
        if owner := account.others([machine.tag.uid for machine in there]):
            raise ConflictError(
                f"There is already a lab '{plan.lab}', and it belongs to {owner}.",
                why=f"It has the nodes {', '.join(machine.tag.node for machine in there)}.",
                cure=f"Give your own lab another name: --lab NAME, or WINLAB_LAB. Or ask {owner} to remove that one.",
            )
        raise ConflictError(
            f"There is already a lab '{plan.lab}', made from another spec or by another version of winlab.",
            why=f"It has the nodes {', '.join(machine.tag.node for machine in there)}.",
            cure=f"'winlab diff --lab {plan.lab}' with the same spec says what differs, and 'winlab apply' changes it. "
            f"Or run 'winlab destroy --lab {plan.lab}' first, or give the new lab another name with --lab.",
        )


def refuse_others_network(lab: str, site: Site, hosts: Hypervisors) -> None:
    """Check that no other user is making a lab of this name: at first it has a network and volumes, and no machines.

    :raises ConflictError: one is.
    """
    if not hosts.machines(lab) and (others := traces.others(lab, hosts, site.overlay)):
        raise ConflictError(
            f"The lab '{lab}' belongs to {others}.",
            why="It has a network and no machines yet: it is being made, or half of it is left.",
            cure=f"Give your own lab another name: --lab NAME, or WINLAB_LAB. Or ask {others} to remove that one.",
        )


def refuse_taken_names(plans: Iterable[Plan], hosts: Hypervisors) -> None:
    """Check that no other domain has the name of one of the plans' machines.

    :raises ConflictError: one has.
    """
    for plan in plans:
        for node in plan.nodes:
            domains.tag_of(hosts.on(node).conn, node)


def check_memory(
    plan: Plan,
    hosts: Hypervisors,
    amendment: Amendment = Amendment(),  # noqa: B008 - frozen
) -> None:
    """Check that guests not yet started fit into their hypervisors' memory; otherwise one is killed without warning.

    :raises HostError: they don't.
    """
    for host in hosts:
        _check_memory(plan, host, amendment)


def _check_memory(plan: Plan, host: Hypervisor, amendment: Amendment) -> None:
    conn, nodes = host.conn, [node for node in plan.nodes if node.hypervisor == host.name]
    started = {machine.uuid for machine in host.machines(plan.lab) if machine.state not in domains.OFF}

    def has(machine: domains.Named) -> int:
        return domains.sizes(conn, machine, now=True)[1] if machine.uuid in started else 0

    needed = sum(node.memory_mib for node in nodes if node.uuid not in started)
    needed += sum(node.memory_mib - has(node) for node in amendment.restarted if node in nodes)
    freed = [machine for name, machine in amendment.removed.items() if name not in amendment.rebuilt]
    free = domains.free_memory_mib(conn) + sum(map(has, freed))
    if needed > free:
        raise HostError(
            f"The lab needs {needed} MiB of memory, but the hypervisor has only {free} MiB free.",
            cure="Stop other labs or programs, choose a smaller spec, or give nodes less with --set workers.memory=...",
        )
