"""Labs: create, look, destroy. Reality is read from tags; the local folder holds only secrets and the journal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from winlab.adapters.guests import base
from winlab.adapters.kube import kubeconfig
from winlab.adapters.overlay import ovn
from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection, connected
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.volumes import Pool
from winlab.addons import recipe as addons
from winlab.design.catalog.artifact import Obtained
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.design.plan.tags import Tag
from winlab.engine import engine
from winlab.engine.durations import Forecast
from winlab.engine.run import Run, Sources
from winlab.errors import ConflictError, GuestError, HostError, NotFoundError, WinlabError, together
from winlab.events import Event, Listener, Note, StepDone, Told
from winlab.lab_folder import LabState
from winlab.operations import bundle, golden, join, lock_file, lock_inputs
from winlab.steps import payload, recipe
from winlab.steps.golden import all_made
from winlab.steps.payload import Origin

Until = Literal["guests", "cluster"]


@dataclass(frozen=True)
class NodeStatus:
    """A node as it is. ``answers`` is None where it was not asked."""

    tag: Tag
    state: str
    answers: bool | None
    problem: str = ""


def create(
    plan: Plan,
    stock: Stock,
    tell: Listener,
    *,
    mirror: str | None = None,
    until: Until = "cluster",
    origin: Origin | None = None,
    locked: Path | None = None,
    admin: str = "",
    consent: bool = False,
) -> None:
    """Make the lab, or carry on with it; what is there already stays as it is.

    :param stock: what was at hand when the plan was made.
    :param mirror: where downloaded images come from, instead of their own sites.
    :param until: ``guests`` ends when the nodes answer, ``cluster`` when Kubernetes is ready on them.
    :param origin: where Kubernetes' artifacts come from; by default what is at hand.
    :param locked: a lock file; whatever is not as it says is refused.
    :param admin: the kubeconfig of a cluster made elsewhere, for a plan that joins one.
    :param consent: the terms of Microsoft's evaluation media were accepted: what lacks is fetched.
    :raises NotFoundError: there is no source for what the lab needs; nothing was touched.
    :raises ConflictError: there is a lab of that name from another plan, or another winlab is at it.
    :raises WinlabError: a step failed.
    """
    state = LabState(plan.lab)
    origin = origin or Origin(mirror=mirror)
    if origin.bundle is not None:
        bundle.restore_images(plan, origin.bundle, Told(tell, "images of the bundle"))
        consent = False  # nothing is fetched then
    golden.check_media(plan, stock, consent=consent, offline=origin.bundle is not None)
    check, check_images = _check_lock(plan, stock, locked) if locked is not None else (None, None)
    with connected() as conn, state.locked(), ExitStack() as held:
        pool = Pool(conn)
        _refuse_other_plan(plan, conn)
        if not all_made(plan.windows_nodes(), conn):
            golden.check_evaluation(plan, tell)
        built = golden.lacking(
            plan, lambda one: golden.is_there(plan, one, pool, conn), held, Told(tell, "golden image")
        )
        _check_memory(plan, conn)
        run = Run.start(plan, stock, conn, Sources(mirror, consent, check_images))
        found = recipe.guests(run)
        if until == "cluster" or built:
            source, why = payload.choose(plan, origin, settled=not built and payload.has_all(run), check=check)
            if source.bundle is not None and origin.bundle is None:
                bundle.restore_lacking(plan, source.bundle, Told(tell, "images of the bundle"))
            tell(Note(lab=plan.lab, text=f"Kubernetes {plan.cluster.versions.kubernetes} comes from {why}"))
        if until == "cluster":
            found += [*recipe.cluster(run, source, admin), *addons.steps(run, source)]
        found += recipe.golden_upload(run, built)
        if built:
            found += recipe.golden_build(run, built, source, alone=until != "cluster")

        def listen(event: Event) -> None:
            state.record(event)
            tell(event)

        forecast = Forecast(run.pace.known, [plan, *built])
        engine.run(forecast.steps(recipe.once(found)), listen, plan.lab)
        for builder in built:
            LabState(builder.lab).remove()


def _check_lock(plan: Plan, stock: Stock, path: Path) -> tuple[Callable[[list[Obtained]], None], Callable[[], None]]:
    """Compare versions, media and images with the lock file now, and have artifacts and images compared when they are
    there.

    :raises ConflictError: something differs; it is named.
    """
    held = lock_file.read(path)
    now = lock_file.collect(plan, [], media=lock_inputs.media(plan, stock), images=lock_inputs.images(plan))
    lock_file.require(held, now, path, whole=False)

    def check(obtained: list[Obtained]) -> None:
        lock_file.require(held, lock_file.collect(plan, obtained), path, whole=False)

    def check_images() -> None:
        now = lock_file.collect(plan, [], media=lock_inputs.fetched(plan), images=lock_inputs.images(plan))
        lock_file.require(held, now, path, whole=False)

    return check, check_images


def _refuse_other_plan(plan: Plan, conn: Connection) -> None:
    there = domains.machines(conn, plan.lab)
    if any(machine.tag.plan != plan.digest for machine in there):
        raise ConflictError(
            f"There is a lab '{plan.lab}' already, made from another spec or by another version of winlab.",
            why=f"It has the nodes {', '.join(machine.tag.node for machine in there)}.",
            cure=f"Run 'winlab destroy --lab {plan.lab}' first, or give the new lab another name with --lab.",
        )


def _check_memory(plan: Plan, conn: Connection) -> None:
    """See that the guests that don't run yet fit into the hypervisor's memory: it ends one without asking else."""
    running = {machine.domain for machine in domains.machines(conn, plan.lab) if machine.state == "running"}
    needed = sum(node.memory_mib for node in plan.nodes if node.domain not in running)
    free = domains.free_memory_mib(conn)
    if needed > free:
        raise HostError(
            f"The lab needs {needed} MiB of memory, and the hypervisor has {free} MiB to give.",
            cure="Stop other labs or programs, choose a smaller spec, or give nodes less with --set workers.memory=...",
        )


def find(lab: str, conn: Connection) -> list[Machine]:
    """The lab's machines.

    :raises NotFoundError: it has none.
    """
    there = domains.machines(conn, lab)
    if not there:
        others = sorted({machine.tag.lab for machine in domains.machines(conn)})
        raise NotFoundError(
            f"There is no lab '{lab}'.",
            cure=f"There are: {', '.join(others)}." if others else "Make one with 'winlab create --spec 1-1-1'.",
        )
    return there


def find_node(lab: str, node: str, conn: Connection) -> Machine:
    """One machine of a lab.

    :raises NotFoundError: there is no such lab, or no such node in it.
    """
    there = find(lab, conn)
    for machine in there:
        if machine.tag.node == node:
            return machine
    raise NotFoundError(
        f"The lab '{lab}' has no node '{node}'.",
        cure=f"It has: {', '.join(machine.tag.node for machine in there)}.",
    )


def status(lab: str) -> list[NodeStatus]:
    """The lab's nodes as they are now; every running one is asked by a verified login.

    :raises NotFoundError: there is no such lab.
    """
    with connected() as conn:
        there = find(lab, conn)
    state = LabState(lab)
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda machine: _ask(machine, state), there))


def _ask(machine: Machine, state: LabState) -> NodeStatus:
    if machine.state != "running":
        return NodeStatus(machine.tag, machine.state, None)
    try:
        guest = base.connect(machine.tag, state, timeout=15)
        try:
            guest.execute(["hostname"])
        finally:
            guest.close()
    except WinlabError as error:
        return NodeStatus(machine.tag, machine.state, False, error.what)
    return NodeStatus(machine.tag, machine.state, True)


def all_labs() -> dict[str, list[Machine]]:
    """Every lab of the host with its machines; also those of which only network rows or volumes are left."""
    with connected() as conn:
        found: dict[str, list[Machine]] = {lab: [] for lab in Pool(conn).labs()}
        for machine in domains.machines(conn):
            found.setdefault(machine.tag.lab, []).append(machine)
    with ovn.connect() as northbound:
        for lab in northbound.labs():
            found.setdefault(lab, [])
    return dict(sorted(found.items()))


def destroy(lab: str, tell: Listener) -> list[str]:
    """Remove every trace of the lab, by its tags alone; twice in a row is fine. Images stay in the pool.

    :returns: what was removed, in words; empty if there was nothing.
    """
    removed: list[str] = []
    state = LabState(lab)

    def gone(kind: Literal["node", "domain", "volume", "network", "folder", "context"], name: str) -> None:
        removed.append(f"{kind} {name}")
        tell(StepDone(lab=lab, step=f"remove {kind} {name}"))

    problems: list[WinlabError] = []
    golden.abandon(lab, lambda other: removed.extend(destroy(other, tell)))
    with connected() as conn, state.locked():
        there = domains.machines(conn, lab)
        # first, since it is the machines that say which nodes are the lab's
        removed_nodes, left = join.leave(state, [machine.tag for machine in there])
        for name in removed_nodes:
            gone("node", name)
        if left:
            tell(Note(lab=lab, text=left))
        for machine in there:
            if domains.remove(conn, machine.domain):
                gone("domain", machine.domain)
        try:
            with ovn.connect() as northbound:
                if northbound.remove(lab):
                    gone("network", f"winlab-{lab}")
        except WinlabError as error:  # the rest can be removed all the same
            problems.append(error)
        try:
            pool = Pool(conn)
            pool.refresh()
            for volume in pool.names(f"{lab}."):
                if pool.delete(volume):
                    gone("volume", volume)
        except WinlabError as error:
            problems.append(error)
        try:
            if kubeconfig.forget(lab):
                gone("context", kubeconfig.name(lab))
        except WinlabError as error:
            problems.append(error)
        if problems:
            raise together(problems)  # the folder stays: it is what a second try would be told about
        had_secrets = any(path.name != "lock" for path in state.folder.iterdir())
        state.remove()
        if had_secrets:
            gone("folder", str(state.folder))
    return removed


def login(lab: str, node: str, via: str | None = None) -> base.Guest:
    """Log in to a node of a lab.

    :raises NotFoundError: there is no such lab or node.
    :raises GuestError: the node does not run, or can't be reached.
    """
    with connected() as conn:
        machine = find_node(lab, node, conn)
    if machine.state != "running":
        raise GuestError(
            f"'{node}' is {machine.state}.", cure="Run the lab's create command again; it starts what is off."
        )
    return base.connect(machine.tag, LabState(lab), via)


def nodes_of(lab: str) -> Sequence[str]:
    """The names of a lab's nodes; empty if there is none."""
    with connected() as conn:
        return [machine.tag.node for machine in domains.machines(conn, lab)]
