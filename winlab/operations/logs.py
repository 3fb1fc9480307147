"""What a node reports: its conditions and events from the API server, and the last lines of its logs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from winlab.adapters.guests import agent
from winlab.adapters.guests.connect import connect
from winlab.adapters.kube import diagnose
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm.domains import Machine
from winlab.design.contract import on_both
from winlab.engine.lab_on_site import LabOnSite
from winlab.errors import OffError, UnreachableError, UsageError, WinlabError
from winlab.operations import look
from winlab.printable import one_line
from winlab.site import Site
from winlab.threads import Threads

EVENTS = 15
MOST_LINES = 10_000
LOGIN = 10  # seconds for a login by an alternative way


@dataclass(frozen=True)
class NodeDiagnostics:
    """One node: every part that could be read; ``problems`` says why the others could not."""

    node: str
    conditions: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """All of it as text, for people. What the node wrote is indented: it can't look like a heading."""
        parts = [f"=== {self.node}"]
        for title, rows in (("conditions", self.conditions), ("events", self.events), *self._lines()):
            parts += [f"--- {one_line(title)}", *(f"  {one_line(row)}" for row in rows)] if rows else []
        parts += [f"!!! {one_line(problem)}" for problem in self.problems]
        return "\n".join(parts)

    def _lines(self) -> list[tuple[str, list[str]]]:
        return [(name, content.split("\n")) for name, content in self.logs.items() if content]


def reports(lab: str, site: Site, node: str, lines: int) -> list[NodeDiagnostics]:
    """What a node reports, or all nodes if *node* is empty.

    :param lines: how many lines of each log.
    :raises NotFoundError: there is no such lab or node.
    :raises UsageError: *lines* is out of range.
    """
    if not 1 <= lines <= MOST_LINES:
        raise UsageError(f"--lines {lines} is not between 1 and {MOST_LINES}.")
    off = ""
    with site.hypervisors() as hosts:
        machines, standing = look.find_nodes(lab, [node] if node else [], hosts), LabOnSite.find(lab, site, hosts)
        kubectl = look.kubectl(standing.folder)
        try:
            if kubectl is not None:
                look.require_api(hosts.machines(lab))
        except OffError as error:
            kubectl, off = None, error.what
        found = gather(machines, standing, kubectl, on_both.Logs(lines=lines))
    for report, machine in zip(found, machines, strict=True):
        if off and machine.tag.is_member:
            report.problems.insert(0, off)
    return found


def gather(
    machines: list[Machine], lab: LabOnSite, kubectl: Kubectl | None, call: on_both.Logs
) -> list[NodeDiagnostics]:
    """Ask all nodes at once, and the API server about them. A missing answer is reported, not raised.

    A node that does not answer is asked by its alternative ways, then by its guest agent.

    :param kubectl: None: the lab has no cluster (yet).
    :param call: how many lines of which logs.
    """
    with Threads(max_workers=8) as pool:
        return list(pool.map(lambda machine: _report(machine, lab, kubectl, call), machines))


def _report(machine: Machine, lab: LabOnSite, kubectl: Kubectl | None, call: on_both.Logs) -> NodeDiagnostics:
    report = NodeDiagnostics(machine.tag.node)
    if kubectl is not None and machine.tag.is_member:
        try:
            report.conditions.extend(_conditions(kubectl, machine.tag.node))
            report.events.extend(_events(kubectl, machine.tag.node))
        except WinlabError as error:
            report.problems.append(f"The API server: {_words(error)}")
    if machine.state != "running":
        report.problems.append(f"The node is {machine.state}.")
        return report
    logs: dict[str, str] = {}
    try:
        with lab.scripts(machine) as node:
            logs = node.run(call).logs
    except UnreachableError as error:
        report.problems.append(f"The node: {_words(error)}")
        logs, how = _instead(machine, lab, call)
        if logs:
            report.problems.append(f"What is above came {how}.")
    except WinlabError as error:
        report.problems.append(f"The node: {_words(error)}")
    report.logs.update({name: text.rstrip() for name, text in sorted(logs.items())})
    return report


def _instead(machine: Machine, lab: LabOnSite, call: on_both.Logs) -> tuple[dict[str, str], str]:
    """The logs of a node whose system's usual way does not respond, and how they came; none if nothing answers."""
    tag, folder = machine.tag, lab.folder
    for way in tag.system.spare_logins:
        with suppress(WinlabError), lab.scripts(machine, partial(connect, tag, folder, way, LOGIN)) as node:
            return node.run(call).logs, f"by {way}"
    with suppress(WinlabError):
        return agent.texts(lab.on(machine).conn, machine, tag, folder, call), "from its guest agent"
    return {}, ""


def _conditions(kubectl: Kubectl, node: str) -> list[str]:
    found = kubectl.find("node", node)
    if found is None:
        return ["It is not in the cluster."]
    return [
        f"{row['type']}={row['status']} {row.get('reason', '')}: {row.get('message', '')}"
        for row in diagnose.conditions(found)
    ]


def _events(kubectl: Kubectl, node: str) -> list[str]:
    selector = f"--field-selector=involvedObject.kind=Node,involvedObject.name={node}"
    rows: list[dict[str, Any]] = kubectl.get("events", "--all-namespaces", selector)["items"]
    rows.sort(key=_time)
    return [
        f"{_time(row)} {row.get('type', '')} {row.get('reason', '')}: {row.get('message', '')}"
        for row in rows[-EVENTS:]
    ]


def _time(row: dict[str, Any]) -> str:
    """When an event was last seen; each kind of event has this in a different field (core/v1 Event)."""
    series: dict[str, Any] = row.get("series") or {}
    seen = series.get("lastObservedTime") or row.get("lastTimestamp") or row.get("eventTime")
    return str(seen or row["metadata"].get("creationTimestamp", ""))


def _words(error: WinlabError) -> str:
    return " ".join(filter(None, (error.what, error.why)))
