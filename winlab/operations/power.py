"""Stop, start, restart, suspend and resume a lab or nodes of it, by its tags: no plan is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from winlab.adapters.kube import expiry, kubeconfig
from winlab.adapters.vm import domains
from winlab.design.distribution import known
from winlab.engine.durations import Forecast
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.step import Step
from winlab.errors import ClusterError, GuestError
from winlab.events import Listener, Note, Told
from winlab.host import firewall
from winlab.operations import faults, look, recorded, room
from winlab.operations.carry_out import Job, Underway, carry_out
from winlab.site import Site
from winlab.steps.power import answer, ready, shutdown, switch
from winlab.steps.power.subject import Subject
from winlab.steps.states import ANSWERING, STARTED, STOPPED

DAY = 86400.0
SOON = 30 * DAY  # before certificates expire, a start says so
LOGS_IN = ("start", "restart", "resume")  # verbs that wait until a node answers
Runs = Callable[[Sequence[Step]], None]
Act = Callable[[list[Subject], Runs], None]


@dataclass(frozen=True)
class Switched:
    """A node that was switched: its states before and now, as text.

    ``clock`` is how many seconds its clock was set forward, or back if negative.
    """

    node: str
    before: str
    state: str
    clock: float = 0.0


def stop(lab: str, site: Site, nodes: Sequence[str], tell: Listener, *, force: bool = False) -> list[Switched]:
    """Shut nodes down, workers before controllers; those that are off are skipped.

    :param nodes: their names; none: the whole lab.
    :param force: cut their power.
    :raises NotFoundError: there is no such lab or node; nothing was touched.
    :raises StalledError: a node does not shut down.
    """
    return _switch("stop", lab, site, nodes, tell, lambda subjects, run: run(_stops(subjects, force=force)))


def start(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Start nodes, controllers first, and resume those that are suspended; wait until they answer and are Ready.

    :param nodes: their names; none: the whole lab.
    :raises NotFoundError: there is no such lab or node, or this account can't log in to it; nothing was touched.
    :raises HostError: the host's firewall is gone, there is not enough memory, or no room for a disk.
    :raises WinlabError: a node does not answer, or does not become Ready.
    """
    return _switch("start", lab, site, nodes, tell, partial(_start, tell=tell))


def restart(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Shut nodes down and start them again, as :func:`stop` and :func:`start` do; those that are off are started.

    The machine is switched off in between, so it is always a fresh boot, and changed hardware takes effect.

    :raises WinlabError: as those two.
    """
    return _switch(
        "restart", lab, site, nodes, tell, lambda subjects, run: _start(subjects, run, tell, _stops(subjects))
    )


def suspend(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Suspend running nodes: their memory stays, their processors stop. Nodes that are off or crashed stay so.

    :raises NotFoundError: there is no such lab or node; nothing was touched.
    :raises GuestError: a node that was named is off or crashed; nothing was touched.
    """

    def act(subjects: list[Subject], run: Runs) -> None:
        run([switch.suspend(one) for one in _active(subjects, nodes, tell, "suspended")])

    return _switch("suspend", lab, site, nodes, tell, act)


def resume(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Resume nodes that are suspended or paused; wait until they answer, set their clocks, wait until they are Ready.

    :raises NotFoundError: there is no such lab or node, or this account can't log in to it; nothing was touched.
    :raises GuestError: a node that was named is off or crashed; nothing was touched.
    :raises HostError: the host's firewall is gone, or there is no room for a disk.
    :raises WinlabError: a node does not answer, or does not become Ready.
    """

    def act(subjects: list[Subject], run: Runs) -> None:
        bring_up(_active(subjects, nodes, tell, "resumed"), run, tell)

    return _switch("resume", lab, site, nodes, tell, act)


def _switch(verb: str, lab: str, site: Site, nodes: Sequence[str], tell: Listener, act: Act) -> list[Switched]:
    """Carry out a verb on the named machines of a lab, or on all of them.

    :param verb: what is done, for the journal.
    :param act: does it, with what runs steps.
    :raises NotFoundError: there is no such lab or node, or this account can't log in to it, which the verb needs.
    :raises HostError: the host's firewall is gone, and the verb lets guests run.
    """

    def work(under: Underway) -> list[Switched]:
        hosts, standing = under.hypervisors, under.lab
        subjects = [Subject(standing, one) for one in look.find_nodes(lab, nodes, hosts)]
        if verb in LOGS_IN:
            under.folder.credentials()
            firewall.require(Told(tell, "firewall"))
        faults.forget_over(lab, hosts)
        faults.report(lab, site, hosts, under.tell)
        forecast = Forecast(standing.pace.known, recorded.standing(under.folder)[:1])
        act(subjects, lambda steps: under.run(forecast.steps(steps), verb))
        switched = [Switched(one.name, one.machine.state, one.state, round(one.stepped, 1)) for one in subjects]
        faults.forget_over(lab, hosts)
        return switched

    return carry_out(Job(lab, work, must_exist=True, nodes=nodes, storage=True), site, tell)


def _stops(subjects: Sequence[Subject], *, force: bool = False) -> list[Step]:
    """The steps that shut machines down; a controller waits for the workers."""
    workers = [one.at(STOPPED) for one in subjects if not one.is_controller]
    return [shutdown.step(one, workers if one.is_controller else (), force=force) for one in subjects]


def _start(subjects: Sequence[Subject], run: Runs, tell: Listener, before: Sequence[Step] = ()) -> None:
    room.require(subjects[0].lab.hypervisors, [one.machine for one in subjects])
    bring_up(subjects, run, tell, before)


def bring_up(subjects: Sequence[Subject], run: Runs, tell: Listener, before: Sequence[Step] = ()) -> None:
    """Start or resume machines, controllers first, after the steps *before*; wait for them and their cluster's nodes.

    :raises ClusterError: the cluster's certificates have expired; the machines run.
    """
    if not subjects:
        return
    lab = subjects[0].lab
    stopped = [step.reaches for step in before]
    controllers = [one for one in subjects if one.is_controller]
    steps = list(before)
    boots = {one.name: bool(before) or one.machine.state in domains.OFF for one in subjects}
    for one in subjects:
        first = [] if one.is_controller else [other.at(STARTED) for other in controllers]
        steps += [switch.start(one, [*stopped, *first]), answer.step(one, boots=boots[one.name])]
    kubectl = look.kubectl(lab.folder)
    if kubectl is None and lab.folder.has(lab.folder.kubeconfig):
        text = (
            f"Not waiting until the nodes are Ready: kubectl is missing. 'winlab repair --lab {lab.name}' obtains it."
        )
        tell(Note(lab=lab.name, text=text))
    expires = expiry.of(kubeconfig.read(lab.folder)) if kubectl else None
    expired = expires is not None and expires.timestamp() <= time.time()
    if kubectl is not None and not expired and any(one.machine.tag.is_member for one in subjects):
        if idle := _idle_controllers(subjects, lab):
            text = f"Not waiting until the nodes are Ready: {', '.join(idle)} must run for that."
            tell(Note(lab=lab.name, text=text))
        else:
            answering = [other.at(ANSWERING) for other in controllers]
            members = [one for one in subjects if one.machine.tag.is_member]
            steps += [ready.step(one, kubectl, answering, boots=boots[one.name]) for one in members]
    run(steps)
    if expires is not None:
        _tell_expiry(lab, expires, max(abs(one.stepped) for one in subjects), tell)


def _idle_controllers(subjects: Sequence[Subject], lab: LabOnSite) -> list[str]:
    """The lab's controllers, if none of them runs or is about to; an external cluster has none here."""
    controllers = [one for one in lab.machines() if one.tag.role == "controller"]
    switched = {one.uuid for one in subjects}
    idle = [one.tag.node for one in controllers if one.state != "running" and one.uuid not in switched]
    return idle if len(idle) == len(controllers) else []


def _tell_expiry(lab: LabOnSite, expires: datetime, stepped: float, tell: Listener) -> None:
    """Report when the cluster's certificates expire, if that is soon or the guests' clocks jumped by days.

    :raises ClusterError: they have expired.
    """
    left = expires.timestamp() - time.time()
    if left <= 0:
        plans = [plan for plan in recorded.standing(lab.folder) if plan.kubernetes is not None]
        made_by = plans[0].cluster.distribution if plans else known.DEFAULT
        raise ClusterError(
            f"The nodes of '{lab.name}' run, but the certificates of its cluster expired on {expires:%Y-%m-%d}.",
            why=f"{made_by.name}'s certificates are valid for a year, and nothing renewed them.",
            cure=f"Destroy the lab and create it again; or run 'sudo {made_by.renewal}' on its controllers.",
        )
    if left < SOON or stepped >= DAY:
        text = f"The certificates of the cluster are valid until {expires:%Y-%m-%d} ({left / DAY:.0f} days)."
        tell(Note(lab=lab.name, text=text))


def _active(subjects: list[Subject], nodes: Sequence[str], tell: Listener, what: str) -> list[Subject]:
    """The machines that are not off and have not crashed.

    :raises GuestError: one that was named is or has.
    """
    off = [one for one in subjects if one.machine.state in (*domains.OFF, domains.CRASHED)]
    if off:
        lab, names = off[0].lab.name, ", ".join(one.name for one in off)
        states = " or ".join(sorted({one.machine.state for one in off}))
        if nodes:
            raise GuestError(
                f"{names} can't be {what}: {states}.",
                cure=f"Start with 'winlab start {' '.join(one.name for one in off)} --lab {lab}'.",
            )
        text = f"{states.capitalize()}, and left so: {names}. 'winlab start --lab {lab}' starts what is {states}."
        tell(Note(lab=lab, text=text))
    return [one for one in subjects if one not in off]
