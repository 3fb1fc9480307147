"""The lab's network: OVN's rows and daemons, the bridge's address, the firewall, the machines' ports in the switch."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator
from functools import partial

from winlab import settings
from winlab.adapters.overlay.differences import Difference
from winlab.adapters.vm import definitions, machine_xml
from winlab.design.plan.facts import HYPERVISOR
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render.topology import topology
from winlab.engine.run import Run
from winlab.errors import HostError
from winlab.events import Progress
from winlab.host import fabric, firewall
from winlab.operations import attachment as attachments
from winlab.operations.drift.model import Drift, Finding, Subject
from winlab.steps.foundation import FOLLOW_SECONDS

SETUP = "run 'sudo winlab host setup'"


def rows(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """The rows of the northbound database, one by one."""
    run = subject.run
    progress.say("comparing the network's rows")
    with run.overlay() as northbound:
        seen = northbound.differences(topology(run.plan))
    for one in seen:
        node, what = _subject(one.what, run.plan)
        if not node or any(node == inspected.name for inspected in subject.nodes):
            yield Finding(_row(one, node, what), None if one.foreign else partial(_mend_rows, run))


def _row(one: Difference, node: str, what: str) -> Drift:
    action = "left alone: winlab did not make it" if one.foreign else "written again, without touching other rows"
    return Drift("network", node, what, one.expected or "none", one.actual or "none", action, not one.foreign)


def _subject(what: str, plan: Plan) -> tuple[str, str]:
    """The node whose port a row is, and a name for people in place of the port's; no node for other rows."""
    for node in plan.nodes:
        row = f"Logical_Switch_Port {node.port}"
        if what == row or what.startswith(f"{row}: "):
            return node.name, f"port in OVN{what.removeprefix(row)}"
    return "", what


def _mend_rows(run: Run, progress: Progress) -> None:
    progress.say("writing what differs")
    with run.overlay() as northbound:
        wanted = topology(run.plan)
        if any(not one.foreign for one in northbound.differences(wanted)):
            northbound.apply(wanted)


def daemons(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Whether northd and this host's controller follow the northbound database."""
    run = subject.run
    progress.say("waiting for OVN's daemons")
    with run.overlay() as northbound:
        try:
            for host in run.plan.hypervisors.values():
                northbound.await_followers(run.pace.silence(FOLLOW_SECONDS) / 2, host.chassis)
        except HostError as error:
            yield Finding(Drift("network", "", "OVN's daemons", "follow the database", error.what, error.cure, False))


def bridge(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The address of the bridge by which this host reaches labs."""
    net = subject.run.plan.network
    prefix = ipaddress.IPv4Network(net.external_cidr).prefixlen
    if not settings.network_is_here() or not (trouble := fabric.bridge_trouble(net.external_gateway, prefix)):
        return
    repairable = os.geteuid() == 0 and "missing" not in trouble
    repair = partial(fabric.restore_address, net.external_gateway, prefix) if repairable else None
    planned, action = f"{net.external_gateway}/{prefix}", "the address is given back" if repairable else SETUP
    drift = Drift("network", "", f"bridge {settings.BRIDGE}", planned, trouble, action, repairable)
    yield Finding(drift, repair, cuts_off=True)


def firewall_table(_subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The firewall table that keeps guests away from this host; accounts other than root see only whether it exists."""
    if not (trouble := firewall.trouble()):
        return
    repairable = os.geteuid() == 0
    table, action = f"firewall table inet {firewall.TABLE}", "written again" if repairable else SETUP
    drift = Drift("network", "", table, "as setup writes it", trouble, action, repairable)
    yield Finding(drift, firewall.restore if repairable else None)


def attachment(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """What this host does for a lab that is routed or attached to an external cluster."""
    trouble, command = attachments.trouble(subject.run.plan)
    if not trouble:
        return
    repairable = os.geteuid() == 0 and "any more" not in trouble
    mode, action = subject.run.plan.network.mode, "set up again" if repairable else f"run '{command}'"
    drift = Drift("network", "", "attachment", mode, trouble, action, repairable)
    yield Finding(drift, partial(attachments.restore, subject.run.plan) if repairable else None)


def ports(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """The running machines' ports in Open vSwitch, according to what OVN's controller has bound."""
    run = subject.run
    with run.overlay() as northbound:
        up = northbound.ports_up(run.lab)
    plugged = fabric.guest_ports() if settings.network_is_here() and os.geteuid() == 0 else None
    for node in subject.nodes:
        if definitions.running(run.on(node).conn, node) is None or up.get(node.port, True):
            continue  # a paused machine has its port, too
        here = node.hypervisor == HYPERVISOR  # others' switches can't be seen from this host
        repairable = here and plugged is not None and node.port not in plugged and _interface(run, node) is not None
        closer = f"as root, 'winlab repair {node.name}' looks closer"
        action = "plugged in again" if repairable else f"{closer}; else {SETUP}"
        drift = Drift("network", node.name, "port in Open vSwitch", "bound", "not bound", action, repairable)
        yield Finding(drift, partial(_plug, run, node) if repairable else None)


def _interface(run: Run, node: NodePlan) -> str | None:
    """The name of a running machine's interface on this host."""
    xml = definitions.running(run.on(node).conn, node)
    return None if xml is None else machine_xml.interface(xml, node.port)


def _plug(run: Run, node: NodePlan, progress: Progress) -> None:
    name = _interface(run, node)
    if name is not None:
        progress.say(name)
        fabric.plug(name, mac=node.mac, port=node.port, machine=node.uuid)
