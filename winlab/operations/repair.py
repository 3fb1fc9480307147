"""Find where an existing lab differs from its recorded plan, and repair it.

The lab is inspected, drift is repaired, and the lab is inspected again: a service in a guest can be seen only once its
machine runs. Repairs use the steps of ``create`` wherever there is one. Nothing here makes a disk, resets a
controller or restarts a running machine, except that nodes of a forgotten hypervisor are first made again elsewhere.
What winlab did not make is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from winlab.adapters.vm import devices, pushed
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.engine.durations import Forecast
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import WinlabError
from winlab.events import Listener, Note
from winlab.operations import elsewhere, faults, look, recorded, room
from winlab.operations.carry_out import Job, Underway, carry_out, one_step
from winlab.operations.drift import inspections
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.operations.making import refuse_other_plan
from winlab.site import Site
from winlab.steps import payload, recipe, sources
from winlab.steps.sources import Origin
from winlab.steps.states import PAYLOAD, REPAIRED, STARTED
from winlab.supply.payload import PREFIX

ROUNDS = 8  # of repairs: more than there are tiers


def repair(
    lab: str, site: Site, tell: Listener, *, node: str = "", check: bool = False, digests: bool = False
) -> list[Drift]:
    """What differs, and whether it was repaired; empty if nothing does.

    :param node: only what belongs to this node or to the whole lab; empty: every node.
    :param check: only inspect.
    :param digests: read whole base volumes, and compare their digests.
    :raises NotFoundError: there is no such node, or this account has no record of the lab.
    :raises ConflictError: the lab is not the recorded one, or another winlab is changing it.
    :raises WinlabError: the lab can't be inspected.
    """

    def work(under: Underway) -> list[Drift]:
        plan, hosts = recorded.read(under.folder).plan, under.hypervisors
        look.require_known(lab, [node] if node else [], [one.name for one in plan.nodes])
        nodes = tuple(one for one in plan.nodes if node in ("", one.name))
        recorded.refuse_unfinished(under.folder)
        refuse_other_plan(plan, hosts)
        faults.report(lab, site, hosts, tell)
        for one in nodes:
            for program in pushed.read(hosts.on(one).conn, one):
                tell(Note(lab=lab, text=f"{one.name}: {program}. It is left as it is."))
        run = replace(Run.start(plan, Stock(), site, hosts), keeps_disks=True)
        subject = Subject(run, nodes, _is_cluster(run), digests)
        if check:
            return [one.drift for one in _inspect(subject, tell)]
        drifts = _repair(subject, tell, under)
        faults.forget_over(lab, hosts)
        return drifts

    recorded.read(site.folder(lab))  # before the lock, which makes a folder
    lost = elsewhere.rebuild_lost(lab, site, tell, check=check)
    if any(not one.repaired for one in lost):
        return lost  # the others' steps need all hypervisors of the plan
    return lost + carry_out(Job(lab, work, storage=True, locks=not check), site, tell)


def _repair(subject: Subject, tell: Listener, under: Underway) -> list[Drift]:
    """Inspect and repair until no untried drift is left. What can't be repaired does not stop the other repairs.

    :param tell: receives inspections, which are not in the journal.
    """
    seen: dict[tuple[str, str, str], Drift] = {}
    tried: set[tuple[str, str, str]] = set()
    failed: dict[tuple[str, str, str], str] = {}
    for _ in range(ROUNDS):
        findings = _inspect(subject, tell)
        for one in findings:
            seen.setdefault(one.drift.key, one.drift)
        todo = [one for one in findings if one.drift.repairable and one.drift.key not in tried]
        if not todo:
            break
        todo = [one for one in todo if one.tier == min(other.tier for other in todo)]
        tried |= {one.drift.key for one in todo}
        try:
            _put_right(subject, todo, under)
        except WinlabError as error:
            failed |= {one.drift.key: f"failed: {error.what}" for one in todo}
        subject = replace(subject, digests=False)  # they were read, and what was written again was read first
    left = {one.drift.key: one.drift for one in findings}
    left |= {key: replace(left[key], action=why) for key, why in failed.items() if key in left}
    return [left.get(key) or replace(drift, repaired=True) for key, drift in seen.items()]


def _inspect(subject: Subject, tell: Listener) -> list[Finding]:
    usual = 5.0 + subject.run.pace.usual(2.0)
    return one_step("inspect", lambda progress: inspections.inspect(subject, progress), tell, usual=usual)


def _put_right(subject: Subject, todo: list[Finding], under: Underway) -> None:
    run = subject.run
    if starting := {one.drift.node for one in todo if STARTED in one.steps}:
        nodes = tuple(node for node in run.plan.nodes if node.name in starting)
        room.require_for(run.plan.model_copy(update={"nodes": nodes}), run.hypervisors)
    steps = assemble(run, todo, _recipe(subject, todo))
    under.run(Forecast(run.pace.known, [run.plan]).steps(steps), "repair")


def _recipe(subject: Subject, todo: list[Finding]) -> list[Step]:
    """All steps of create that a repair chooses from."""
    run = subject.run
    steps = recipe.guests(run)
    if subject.cluster or run.plan.kubernetes is None:
        makes_payload = any(PAYLOAD in one.lab_steps for one in todo)
        settled = not makes_payload or payload.has_all(run)
        supply, _ = sources.choose(run.plan, Origin(), settled=settled)
        admin = run.folder.kubeconfig.read_text() if run.plan.joins and run.folder.has(run.folder.kubeconfig) else ""
        steps += recipe.cluster(run, supply, admin)
    return recipe.once(steps)


def assemble(run: Run, todo: Iterable[Finding], steps: Iterable[Step]) -> list[Step]:
    """The repair of these findings as steps: first what create has no steps for, then the named steps of create. The
    states of other steps count as reached: the lab exists.

    :param steps: those of create.
    """
    todo = list(todo)
    mends = {
        REPAIRED(run.lab, one.drift.node, of=" ".join(filter(None, (one.drift.node, one.drift.what)))): one.repair
        for one in todo
        if one.repair is not None
    }
    # one after another: several may repair the same rows or the same definition
    states = list(mends)
    first = [
        Step(state, mends[state], lambda: False, after=states[max(0, at - 1) : at]) for at, state in enumerate(states)
    ]
    wanted = {(kind, one.drift.node) for one in todo for kind in one.steps}
    wanted |= {(kind, "") for one in todo for kind in one.lab_steps}
    chosen = [step for step in steps if (step.reaches.kind, step.reaches.node) in wanted]
    reached = {state for step in chosen for state in step.states}
    return [*first, *(replace(step, after=[*(step.needs & reached), *mends]) for step in chosen)]


def _is_cluster(run: Run) -> bool:
    """Whether the lab has a cluster, and was created beyond guests that answer."""
    if run.plan.kubernetes is None:
        return False
    return run.folder.has(run.folder.kubeconfig) or any(_has_payload(run, node) for node in run.plan.members)


def _has_payload(run: Run, node: NodePlan) -> bool:
    inserted = devices.inserted(run.on(node).conn, node).values()
    return any(path.name.startswith(PREFIX) for path in inserted)
