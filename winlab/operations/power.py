"""Stop, start, restart, suspend and resume a lab or nodes of it, by its tags: no plan is needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from winlab.adapters.kube import expiry, kubeconfig
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.engine import engine
from winlab.engine.durations import Forecast
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.step import Step
from winlab.errors import ClusterError, GuestError, NotFoundError, WinlabError
from winlab.events import Listener, Note, Told
from winlab.host import firewall
from winlab.lab_folder import LabFolder
from winlab.operations import faults, look, recorded, room
from winlab.site import Site
from winlab.steps.power import answer, ready, shutdown, switch
from winlab.steps.power.subject import Subject
from winlab.steps.states import ANSWERING, STARTED, STOPPED

DAY = 86400.0
SOON = 30 * DAY  # before certificates expire, a start says so


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
    with _standing("stop", lab, site, nodes, tell) as (subjects, run):
        run(_stops(subjects, force=force))
        return _result(subjects)


def start(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Start nodes, controllers first, and resume those that are suspended; wait until they answer and are Ready.

    :param nodes: their names; none: the whole lab.
    :raises NotFoundError: there is no such lab or node, or this account can't log in to it; nothing was touched.
    :raises HostError: the host's firewall is gone, there is not enough memory, or no room for a disk.
    :raises WinlabError: a node does not answer, or does not become Ready.
    """
    with _standing("start", lab, site, nodes, tell) as (subjects, run):
        _check_memory(subjects)
        _go_on(subjects, tell, run, [])
        return _result(subjects)


def restart(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Shut nodes down and start them again, as :func:`stop` and :func:`start` do; those that are off are started.

    The machine is switched off in between, so it is always a fresh boot, and changed hardware takes effect.

    :raises WinlabError: as those two.
    """
    with _standing("restart", lab, site, nodes, tell) as (subjects, run):
        _check_memory(subjects)
        _go_on(subjects, tell, run, _stops(subjects))
        return _result(subjects)


def suspend(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Suspend running nodes: their memory stays, their processors stop. Nodes that are off or crashed stay so.

    :raises NotFoundError: there is no such lab or node; nothing was touched.
    :raises GuestError: a node that was named is off or crashed; nothing was touched.
    """
    with _standing("suspend", lab, site, nodes, tell) as (subjects, run):
        chosen = _active(subjects, nodes, tell, "suspended")
        run([switch.suspend(one) for one in chosen])
        return _result(subjects)


def resume(lab: str, site: Site, nodes: Sequence[str], tell: Listener) -> list[Switched]:
    """Resume nodes that are suspended or paused; wait until they answer, set their clocks, wait until they are Ready.

    :raises NotFoundError: there is no such lab or node, or this account can't log in to it; nothing was touched.
    :raises GuestError: a node that was named is off or crashed; nothing was touched.
    :raises HostError: the host's firewall is gone, or there is no room for a disk.
    :raises WinlabError: a node does not answer, or does not become Ready.
    """
    with _standing("resume", lab, site, nodes, tell) as (subjects, run):
        _go_on(_active(subjects, nodes, tell, "resumed"), tell, run, [])
        return _result(subjects)


Runs = Callable[[Sequence[Step]], None]
LOGS_IN = ("start", "restart", "resume")  # verbs that wait until a node answers


@contextmanager
def _standing(
    verb: str, lab: str, site: Site, nodes: Sequence[str], tell: Listener
) -> Iterator[tuple[list[Subject], Runs]]:
    """The named machines of a lab, or all of them, and what runs steps; the lab is locked, and the journal is written.

    :param verb: what is done, for the journal.
    :raises NotFoundError: there is no such lab or node, or this account can't log in to it, which the verb needs.
    :raises HostError: the host's firewall is gone, and the verb lets guests run.
    """
    folder = site.folder(lab)
    with site.storage() as hosts:
        look.find(lab, hosts)
        for node in nodes:
            look.find_node(lab, node, hosts)
        if verb in LOGS_IN:
            folder.credentials()
            firewall.require(Told(tell, "firewall"))
        new = not folder.path.exists()  # another account made the lab
        with folder.locked():
            faults.forget_over(lab, hosts)
            standing = LabOnSite.find(lab, site, hosts)
            there = [one for one in look.find(lab, hosts) if not nodes or one.tag.node in nodes]

            listen = tell if new else folder.journaled(tell)

            def run(steps: Sequence[Step]) -> None:
                engine.run(_forecast(standing).steps(steps), listen, lab, verb)

            if said := faults.sentence(lab, site, hosts):
                listen(Note(lab=lab, text=said))
            try:
                yield [Subject(standing, one) for one in there], run
                faults.forget_over(lab, hosts)
            finally:
                if new:
                    folder.remove()


def _forecast(standing: LabOnSite) -> Forecast:
    """How long the steps usually take; without a record of the lab's plan, for any machine."""
    try:
        plans = [recorded.read(standing.folder).plan]
    except WinlabError:
        plans = []
    return Forecast(standing.pace.known, plans)


def _stops(subjects: Sequence[Subject], *, force: bool = False) -> list[Step]:
    """The steps that shut machines down; a controller waits for the workers."""
    workers = [one.at(STOPPED) for one in subjects if not one.is_controller]
    return [shutdown.step(one, workers if one.is_controller else (), force=force) for one in subjects]


def _go_on(subjects: Sequence[Subject], tell: Listener, run: Runs, before: Sequence[Step]) -> None:
    """Start or resume machines, controllers first, after the steps *before*; wait for them and their cluster's nodes.

    :raises ClusterError: the cluster's certificates have expired; the machines run.
    """
    if not subjects:
        return
    lab = subjects[0].lab
    stopped = [step.reaches for step in before]
    controllers = [one for one in subjects if one.is_controller]
    steps = list(before)
    for one in subjects:
        first = [] if one.is_controller else [other.at(STARTED) for other in controllers]
        steps += [switch.start(one, [*stopped, *first]), answer.step(one)]
    kubectl = _kubectl(lab.folder)
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
            steps += [ready.step(one, kubectl, answering) for one in subjects if one.machine.tag.is_member]
    run(steps)
    if expires is not None:
        _tell_expiry(lab.name, expires, max(abs(one.stepped) for one in subjects), tell)


def _kubectl(folder: LabFolder) -> Kubectl | None:
    """kubectl of the lab's cluster; None if there is none, or this account has no credentials for it."""
    try:
        return Kubectl.of(folder)
    except NotFoundError:
        return None


def _idle_controllers(subjects: Sequence[Subject], lab: LabOnSite) -> list[str]:
    """The lab's controllers, if none of them runs or is about to; an external cluster has none here."""
    controllers = [one for one in lab.machines() if one.tag.role == "controller"]
    switched = {one.uuid for one in subjects}
    idle = [one.tag.node for one in controllers if one.state != "running" and one.uuid not in switched]
    return idle if len(idle) == len(controllers) else []


def _tell_expiry(lab: str, expires: datetime, stepped: float, tell: Listener) -> None:
    """Report when the cluster's certificates expire, if that is soon or the guests' clocks jumped by days.

    :raises ClusterError: they have expired.
    """
    left = expires.timestamp() - time.time()
    if left <= 0:
        raise ClusterError(
            f"The nodes of the lab '{lab}' run, but the certificates of its cluster expired on {expires:%Y-%m-%d}.",
            why="kubeadm's certificates are valid for a year, and nothing renewed them.",
            cure="Destroy the lab and create it again; or run 'sudo kubeadm certs renew all' on its controllers.",
        )
    if left < SOON or stepped >= DAY:
        text = f"The certificates of the cluster are valid until {expires:%Y-%m-%d} ({left / DAY:.0f} days)."
        tell(Note(lab=lab, text=text))


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


def _check_memory(subjects: Sequence[Subject]) -> None:
    room.require(subjects[0].lab.hypervisors, [one.machine for one in subjects])


def _result(subjects: Sequence[Subject]) -> list[Switched]:
    return [Switched(one.name, one.machine.state, one.state, round(one.stepped, 1)) for one in subjects]
