"""Look at labs: all of them, one lab's machines, whether its nodes answer. Reality is read from tags."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace

from winlab import stopping
from winlab.adapters import traces
from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.connect import connect
from winlab.adapters.guests.systems import ways
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.left import Left
from winlab.adapters.vm import domains, pushed
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisors, Silent
from winlab.adapters.vm.pushed import Pushed
from winlab.design.plan import lab_name, tags
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.tags import Tag
from winlab.errors import NotFoundError, OffError, WinlabError
from winlab.lab_folder import CREDENTIALS, LabFolder
from winlab.near import did_you_mean
from winlab.operations import absent, recorded
from winlab.site import Site
from winlab.steps.power import clock
from winlab.threads import Threads

UNKNOWN, LOST = "unknown", "lost"  # states of nodes on a hypervisor that does not answer, or was forgotten
REBOOTED = "libvirt has not seen it run since libvirt started, as after a reboot of its host."
LOOKING = 6.0  # seconds in which a hypervisor must be connected for a mere look; ssh has 5 for itself
API_LIMIT = 4.0  # seconds that the API server has for a mere look


@dataclass(frozen=True)
class Overview:
    """Every lab with its machines; and why others may be missing, a sentence each: what did not answer.

    ``left`` is what labs left on hypervisors that did not answer. It counts as theirs no longer.
    """

    labs: dict[str, list[Machine]]
    unknown: tuple[str, ...]
    left: tuple[Left, ...] = ()


@dataclass(frozen=True)
class NodeStatus:
    """A node as it is now.

    ``answers`` is None if it was not asked, ``autostart`` whether it starts with the host. ``pushed`` are programs that
    users replaced by their own builds. ``hypervisor`` is the name of the one that it is on. ``kubernetes`` is what
    Kubernetes says of the node: Ready or NotReady; empty if it does not answer or does not know the node.
    """

    tag: Tag
    state: str
    answers: bool | None
    problem: str = ""
    autostart: bool = False
    pushed: tuple[Pushed, ...] = ()
    hypervisor: str = HYPERVISOR
    kubernetes: str = ""


@dataclass(frozen=True)
class LabFacts:
    """What is recorded of a lab; empty or None is unknown, as with another user's lab.

    :param version: of Kubernetes.
    :param cni: the CNI profile.
    :param made: when its credentials were made, in seconds since 1970.
    :param memory: of its nodes, in MiB.
    :param attachment: routed or attached, if the lab has joined a cluster in that way.
    """

    version: str = ""
    cni: str = ""
    made: float | None = None
    memory: Mapping[str, int] = field(default_factory=dict)
    attachment: str = ""


def kubectl(folder: LabFolder) -> Kubectl | None:
    """kubectl of a lab's cluster; None if it has none yet, or this account can't use it."""
    with suppress(NotFoundError):
        return Kubectl.of(folder)
    return None


def all_labs(site: Site) -> dict[str, list[Machine]]:
    """Every lab of the site with its machines, including labs of which only network rows or volumes are left.

    ``site.silent`` are the hypervisors that did not answer: their machines and volumes are missing.
    """
    with site.storage() as hosts:
        return traces.labs(hosts, site.overlay)


def overview(site: Site) -> Overview:
    """Every lab, as :func:`all_labs`. If OVN does not answer, labs of which only a network is left are missing.

    :raises HostError: the first hypervisor's libvirt does not answer.
    """
    problems: list[WinlabError] = []
    with site.storage() as hosts:
        labs = traces.labs(hosts, site.overlay, problems.append)
    left: tuple[Left, ...] = ()
    with suppress(WinlabError):  # that OVN does not answer is reported already
        left = site.left()
    return Overview(labs, (*map(str, site.silent), *(error.what for error in problems)), left)


def known_names(site: Site) -> list[str]:
    """The names of all labs with anything here: local folders, and the hypervisor's labs. It never fails."""
    names = set(site.folders())
    with suppress(WinlabError):
        names |= all_labs(site).keys()
    return sorted(names)


def find(lab: str, hosts: Hypervisors) -> list[Machine]:
    """The lab's machines.

    :raises NotFoundError: it has none on the hypervisors that answer.
    """
    lab_machines = hosts.machines(lab)
    if not lab_machines:
        raise _no_lab(lab, {machine.tag.lab for machine in hosts.machines()}, hosts.silent)
    return lab_machines


def find_nodes(lab: str, nodes: Sequence[str], hosts: Hypervisors) -> list[Machine]:
    """The machines of a lab that have these names.

    :param nodes: none: the whole lab.
    :raises NotFoundError: there is no such lab, or no such node in it.
    """
    lab_machines = find(lab, hosts)
    require_known(lab, nodes, [machine.tag.node for machine in lab_machines], hosts.silent)
    return [machine for machine in lab_machines if not nodes or machine.tag.node in nodes]


def require_lab(lab: str, site: Site) -> None:
    """Check that there is a lab of this name, or what is left of one. If a libvirt does not answer, it can't be known.

    :raises NotFoundError: there is none.
    :raises AccessError: the folder of all labs is another user's.
    """
    if lab in site.folders():
        return
    try:
        there = all_labs(site)
    except WinlabError:
        return
    if lab not in there and not site.silent:
        raise _no_lab(lab, there)


def _no_lab(lab: str, others: Iterable[str], silent: Sequence[Silent] = ()) -> NotFoundError:
    others = sorted(one for one in others if not one.startswith(lab_name.GOLDEN))  # winlab's own
    names = f"{did_you_mean(lab, others)}Labs on this host: {', '.join(others)}."
    return NotFoundError(
        f"There is no lab '{lab}'{' on the hypervisors that answer' if silent else ''}.",
        why=" ".join(map(str, silent)),
        cure=names if others else "Create one with 'winlab create 1-1-1'.",
    )


def find_node(lab: str, node: str, hosts: Hypervisors) -> Machine:
    """One machine of a lab.

    :raises NotFoundError: there is no such lab, or no such node in it.
    """
    return find_nodes(lab, [node], hosts)[0]


def require_known(lab: str, nodes: Iterable[str], known: Collection[str], silent: Sequence[Silent] = ()) -> None:
    """Check that nodes are among the *known* ones of a lab.

    :param silent: hypervisors that did not answer and may have others.
    :raises NotFoundError: one is not.
    """
    for node in nodes:
        if node not in known:
            raise NotFoundError(
                f"The lab '{lab}' has no node '{node}'{' on the hypervisors that answer' if silent else ''}.",
                why=" ".join(map(str, silent)),
                cure=f"{did_you_mean(node, known)}It has: {', '.join(known)}.",
            )


def require_running(machine: Machine) -> None:
    """Check that a node runs.

    :raises OffError: it doesn't; the cure says what changes that.
    """
    if machine.state != "running":
        raise OffError(
            f"'{machine.tag.node}' is {machine.state}.",
            cure=f"Run 'winlab {_back(machine)} {machine.tag.node} --lab {machine.tag.lab}'.",
        )


def require_api(machines: Sequence[Machine]) -> None:
    """Check that a controller of a lab runs, so that its API server can answer. An external cluster has none here.

    :param machines: those of the lab.
    :raises OffError: none does: a request would only time out.
    """
    controllers = [machine for machine in machines if machine.tag.role == "controller"]
    if controllers and all(machine.state != "running" for machine in controllers):
        first = controllers[0]
        states = ", ".join(f"'{machine.tag.node}' is {machine.state}" for machine in controllers)
        raise OffError(
            f"The API server of the lab '{first.tag.lab}' does not run: {states}.",
            cure=f"Run 'winlab {_back(first)} --lab {first.tag.lab}'.",
        )


def require_reachable(lab: str, site: Site) -> None:
    """Check that a lab's API server can answer, as far as libvirt says so.

    :raises NotFoundError: there is no such lab.
    :raises OffError: no controller of the lab runs.
    """
    require_lab(lab, site)
    there: list[Machine] = []
    with suppress(WinlabError):  # kubectl needs no libvirt
        there = machines(lab, site)
    require_api(there)


def _back(machine: Machine) -> str:
    """The verb that has a machine run again."""
    return "resume" if machine.state in domains.PAUSED else "start"


def machines(lab: str, site: Site) -> list[Machine]:
    """A lab's machines; empty if there are none."""
    with site.hypervisors() as hosts:
        return hosts.machines(lab)


def status(lab: str, site: Site) -> list[NodeStatus]:
    """The lab's nodes as they are now; each running node is asked over a verified login.

    A wrong clock, as after the host slept, is also a problem of the node, if it can be checked quickly. The state of
    nodes on a hypervisor that does not answer is ``unknown``, and ``lost`` on one that was forgotten.

    :raises NotFoundError: there is no such lab.
    """
    folder = site.folder(lab)
    with site.hypervisors(LOOKING) as hosts:
        unknown = _unknown(folder, site, hosts)
        lab_machines = hosts.machines(lab) if unknown else find(lab, hosts)
        skews = [clock.skew(hosts.on(machine).conn, machine) for machine in lab_machines]
        own = [tuple(pushed.read(hosts.on(machine).conn, machine)) for machine in lab_machines]
        lost = [one.state in domains.OFF and domains.is_unexplained(hosts.on(one).conn, one) for one in lab_machines]
    with Threads(max_workers=9) as pool:
        readiness = pool.submit(_readiness, folder, lab_machines)
        asked = pool.map(lambda machine, skew: _ask(machine, folder, skew), lab_machines, skews)
        found = [
            replace(
                status,
                pushed=programs,
                hypervisor=machine.hypervisor,
                problem=REBOOTED if rebooted else status.problem,
                kubernetes=readiness.result().get(machine.tag.node, ""),
            )
            for status, programs, machine, rebooted in zip(asked, own, lab_machines, lost, strict=True)
        ]
    return [*found, *unknown]


def about(folder: LabFolder) -> LabFacts:
    """What is recorded of a lab."""
    made: float | None = None
    with suppress(OSError):
        made = (folder.path / CREDENTIALS).stat().st_mtime
    for plan in recorded.standing(folder)[-1:]:
        memory = {node.name: node.memory_mib for node in plan.nodes}
        cluster = plan.kubernetes
        if cluster is None:
            return LabFacts(made=made, memory=memory)
        mode = "" if plan.network.mode == "nat" else plan.network.mode
        return LabFacts(cluster.versions.kubernetes, cluster.profile, made, memory, mode)
    return LabFacts(made=made)


def _readiness(folder: LabFolder, lab_machines: Sequence[Machine]) -> dict[str, str]:
    """What Kubernetes says of the nodes, by name; empty if no controller runs, or the API server does not answer."""
    cluster = kubectl(folder)
    if cluster is None:
        return {}
    found: dict[str, str] = {}
    with suppress(WinlabError):
        require_api(lab_machines)
        for node in cluster.get("nodes", limit=API_LIMIT)["items"]:
            found[node["metadata"]["name"]] = "Ready" if diagnose.is_ready(node) else "NotReady"
    return found


def _unknown(folder: LabFolder, site: Site, hosts: Hypervisors) -> list[NodeStatus]:
    """The recorded nodes of a lab whose hypervisors do not answer, or are no longer the site's."""
    answering, found = {one.name for one in hosts}, []
    for plan in recorded.standing(folder)[-1:]:
        silents = [*hosts.silent, *absent.removed(plan.hypervisors, site, hosts)]
        for node in plan.nodes:
            if node.hypervisor in answering:
                continue
            silent = next((str(one) for one in silents if one.is_maybe(node.hypervisor)), "")
            lost = (
                f"The site no longer has the hypervisor '{node.hypervisor}'. 'winlab repair --lab {plan.lab}' makes "
                "the node on another one."
            )
            state = UNKNOWN if silent else LOST
            found.append(NodeStatus(tags.of(plan, node), state, None, silent or lost, hypervisor=node.hypervisor))
    return found


def _ask(machine: Machine, folder: LabFolder, skew: float) -> NodeStatus:
    stopping.check()
    if machine.state != "running":
        return NodeStatus(machine.tag, machine.state, None, autostart=machine.autostart)
    try:
        with closing(connect(machine.tag, folder, timeout=15)) as guest:
            problem = _clock_problem(guest, machine.tag, skew)
    except WinlabError as error:
        return NodeStatus(machine.tag, machine.state, False, error.what, machine.autostart)
    return NodeStatus(machine.tag, machine.state, True, problem, machine.autostart)


def _clock_problem(guest: Guest, tag: Tag, skew: float) -> str:
    """What is wrong with a node's clock; empty if nothing is, or if only a slow query would show it.

    :raises GuestError: the node does not answer.
    """
    if not ways(tag.system).quick_clock:
        guest.execute(["hostname"])
        return ""
    off = clock.difference(guest, tag, skew)
    if abs(off) < clock.WRONG:
        return ""
    side = "ahead of" if off > 0 else "behind"
    return f"Its clock is {abs(off):.0f} s {side} the host's. 'winlab repair {tag.node} --lab {tag.lab}' sets it."
