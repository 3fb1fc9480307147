"""Find where an existing lab differs from its recorded plan, and repair it.

The lab is inspected, drift is repaired, and the lab is inspected again: a service in a guest can be seen only once its
machine runs. Repairs use the steps of ``create`` wherever there is one. Nothing here makes a disk, resets a
controller or restarts a running machine. What winlab did not make is reported and left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace

from winlab.adapters.vm import domains, pushed
from winlab.design.plan.model import NodePlan, Plan
from winlab.design.plan.stock import Stock
from winlab.engine import engine
from winlab.engine.durations import Forecast
from winlab.engine.run import Run
from winlab.engine.state import Kind, State
from winlab.engine.step import Step
from winlab.errors import NotFoundError, WinlabError
from winlab.events import Listener, Note
from winlab.operations import faults, one_step, recorded
from winlab.operations.create import check_memory, refuse_other_plan
from winlab.operations.drift import inspections
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.site import Site
from winlab.steps import payload, recipe
from winlab.steps.payload import Origin
from winlab.steps.states import MENDED, PAYLOAD, STARTED
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
    folder = site.folder(lab)
    recorded.read(folder)  # before the lock, which makes a folder
    with site.storage() as hosts, nullcontext() if check else folder.locked():
        plan = recorded.read(folder).plan
        nodes = tuple(one for one in plan.nodes if node in ("", one.name))
        if not nodes:
            names = ", ".join(one.name for one in plan.nodes)
            raise NotFoundError(f"The lab '{lab}' has no node '{node}'.", cure=f"It has: {names}.")
        recorded.refuse_unfinished(folder)
        refuse_other_plan(plan, hosts)
        if said := faults.sentence(lab, site, hosts):
            tell(Note(lab=lab, text=said))
        for one in nodes:
            for program in pushed.read(hosts.on(one).conn, one.domain):
                tell(Note(lab=lab, text=f"{one.name}: {program}. It is left as it is."))
        run = replace(Run.start(plan, Stock(), site, hosts), keeps_disks=True)
        subject = Subject(run, nodes, _is_cluster(run), digests)
        if check:
            return [one.drift for one in _inspect(subject, tell)]
        drifts = _repair(subject, tell, folder.journaled(tell))
        faults.forget_over(lab, hosts)
        return drifts


def _repair(subject: Subject, tell: Listener, journal: Listener) -> list[Drift]:
    """Inspect and repair until no untried drift is left. What can't be repaired does not stop the other repairs.

    :param journal: receives what is repaired; inspections are not in the journal.
    """
    seen: dict[tuple[str, str, str], Drift] = {}
    tried: set[tuple[str, str, str]] = set()
    failed: dict[tuple[str, str, str], str] = {}
    for _ in range(ROUNDS):
        findings = _inspect(subject, tell)
        for one in findings:
            seen.setdefault(one.drift.key, one.drift)
        todo = [one for one in findings if one.drift.mendable and one.drift.key not in tried]
        if not todo:
            break
        todo = [one for one in todo if one.tier == min(other.tier for other in todo)]
        tried |= {one.drift.key for one in todo}
        try:
            _mend(subject, todo, journal)
        except WinlabError as error:
            failed |= {one.drift.key: f"failed: {error.what}" for one in todo}
        subject = replace(subject, digests=False)  # they were read, and what was written again was read first
    left = {one.drift.key: one.drift for one in findings}
    left |= {key: replace(left[key], action=why) for key, why in failed.items() if key in left}
    return [left.get(key) or replace(drift, mended=True) for key, drift in seen.items()]


def _inspect(subject: Subject, tell: Listener) -> list[Finding]:
    usual = 5.0 + subject.run.pace.usual(2.0)
    return one_step.perform("inspect", lambda progress: inspections.inspect(subject, progress), tell, usual=usual)


def _mend(subject: Subject, todo: list[Finding], tell: Listener) -> None:
    run = subject.run
    if starting := {one.drift.node for one in todo if STARTED in one.steps}:
        check_memory(_only(run.plan, starting), run.hypervisors)
    steps = assemble(run, todo, _recipe(subject, todo))
    engine.run(Forecast(run.pace.known, [run.plan]).steps(steps), tell, run.lab, "repair")


def _only(plan: Plan, names: set[str]) -> Plan:
    return plan.model_copy(update={"nodes": tuple(node for node in plan.nodes if node.name in names)})


def _recipe(subject: Subject, todo: list[Finding]) -> list[Step]:
    """All steps of create that a repair chooses from."""
    run = subject.run
    steps = recipe.guests(run)
    if subject.cluster or run.plan.kubernetes is None:
        makes_payload = any(PAYLOAD in one.lab_steps for one in todo)
        settled = not makes_payload or payload.has_all(run)
        supply, _ = payload.choose(run.plan, Origin(), settled=settled)
        admin = run.folder.kubeconfig.read_text() if run.plan.joins and run.folder.has(run.folder.kubeconfig) else ""
        steps += recipe.cluster(run, supply, admin)
    return recipe.once(steps)


@dataclass(frozen=True)
class _Wanted:
    kinds: frozenset[tuple[Kind, str]]  # with the node's name, empty for those of the lab

    def __contains__(self, state: State) -> bool:
        return (state.kind, state.node) in self.kinds


def assemble(run: Run, todo: Iterable[Finding], steps: Iterable[Step]) -> list[Step]:
    """The repair of these findings as steps: first what create has no steps for, then the named steps of create. The
    states of other steps count as reached: the lab exists.

    :param steps: those of create.
    """
    todo = list(todo)
    mends = {
        MENDED(run.lab, one.drift.node, of=" ".join(filter(None, (one.drift.node, one.drift.what)))): one.mend
        for one in todo
        if one.mend is not None
    }
    # one after another: several may repair the same rows or the same definition
    states = list(mends)
    first = [
        Step(state, mends[state], lambda: False, after=states[max(0, at - 1) : at]) for at, state in enumerate(states)
    ]
    kinds = {(kind, one.drift.node) for one in todo for kind in one.steps}
    wanted = _Wanted(frozenset(kinds | {(kind, "") for one in todo for kind in one.lab_steps}))
    chosen = [step for step in steps if step.reaches in wanted]
    reached = {state for step in chosen for state in step.states}
    return [*first, *(replace(step, after=[*(step.needs & reached), *mends]) for step in chosen)]


def _is_cluster(run: Run) -> bool:
    """Whether the lab has a cluster, and was created beyond guests that answer."""
    if run.plan.kubernetes is None:
        return False
    return run.folder.has(run.folder.kubeconfig) or any(_has_payload(run, node) for node in run.plan.members)


def _has_payload(run: Run, node: NodePlan) -> bool:
    inserted = domains.inserted(run.on(node).conn, node.domain).values()
    return any(path.name.startswith(PREFIX) for path in inserted)
