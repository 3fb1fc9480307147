"""The machines: whether they exist and run, and what hardware they have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from winlab.adapters.vm import definitions, disks, domains, machine_xml
from winlab.adapters.vm.machine_xml import Other
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import domain as domain_file
from winlab.design.render.domain import STORE_DRIVE
from winlab.engine.run import Run
from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.operations.drift.model import Drift, Finding, Subject, Tier
from winlab.steps.cut_off import has_disk, is_cut_off
from winlab.steps.paused import require_writable_disk
from winlab.steps.states import STARTED
from winlab.supply.payload import PREFIX


def states(subject: Subject, progress: Progress) -> Iterator[Finding]:
    """Whether each machine exists and runs."""
    run = subject.run
    progress.say("looking at the machines")
    for node in subject.nodes:
        tag = domains.tag_of(run.on(node).conn, node)  # raises if the name belongs to someone else
        if tag is None:
            if has_disk(run, node):  # without its disk it is lost: the volumes' inspection says so
                yield _finding(node, "gone", "defined again with its disk, and started", partial(_define, run, node))
            continue
        state = domains.state(run.on(node).conn, node)
        if state == "running":
            continue
        try:
            require_writable_disk(run.on(node), node)
        except WinlabError as error:
            yield Finding(Drift("machine", node.name, "state", "running", f"{state}: {error.why}", error.cure, False))
            continue
        if is_cut_off(run, node):
            cure = "Its first boot was cut off. Run the lab's create command again: it starts over with a new disk."
            yield Finding(Drift("machine", node.name, "state", "running", state, cure, False))
            continue
        yield _finding(node, state, "resumed" if state in domains.PAUSED else "started")


def _finding(node: NodePlan, state: str, action: str, repair: partial[None] | None = None) -> Finding:
    drift = Drift("machine", node.name, "state", "running", state, action, repairable=True)
    return Finding(drift, repair, (STARTED,), tier=Tier.START)


def _define(run: Run, node: NodePlan, progress: Progress) -> None:
    progress.say(node.domain)
    definitions.change(
        run.on(node).conn, node, _wanted(run, node, run.folder.credentials().nodes[node.name].vnc_password)
    )


def hardware(subject: Subject, _progress: Progress) -> Iterator[Finding]:
    """Each machine's hardware: as it is started next, and as it runs now."""
    run = subject.run
    for node in subject.nodes:
        defined = definitions.persistent(run.on(node).conn, node)
        if defined is None:
            continue
        own = list(_compare(run, node, defined))
        for one in own:
            yield _hardware_finding(run, node, one)
        now = definitions.running(run.on(node).conn, node)
        told = {(one.what, one.actual) for one in own if not one.part}
        for one in () if now is None else _compare(run, node, now):
            if (one.what, one.actual) not in told:
                action = f"as planned from its next start on: 'winlab restart {node.name}'"
                yield Finding(
                    Drift("machine", node.name, f"{one.what} while it runs", one.expected, one.actual, action, False)
                )


def _hardware_finding(run: Run, node: NodePlan, one: Other) -> Finding:
    if one.part:
        action = "defined as planned; a running machine has it from its next start on"
    else:
        action = "left alone: winlab did not make it"
    drift = Drift("machine", node.name, one.what, one.expected, one.actual, action, repairable=bool(one.part))
    return Finding(drift, partial(_redefine, run, node) if one.part else None)


def _compare(run: Run, node: NodePlan, xml: str) -> Iterator[Other]:
    wanted, actual = machine_xml.read(_wanted(run, node, "")), machine_xml.read(xml)
    return machine_xml.compare(wanted, actual, optional=_read_once(node), ours=(f"{run.lab}.", PREFIX))


def _wanted(run: Run, node: NodePlan, password: str) -> str:
    """The machine's definition as planned, with what it gained or lost after its first start."""
    host = run.on(node)
    names = {node.volume("disk").name: disks.live(host, node).name}
    store = disks.current(host, node, f"{run.lab}.{node.name}.store.qcow2")
    return machine_xml.with_disks(
        domain_file.domain_xml(run.plan, node, password, host.pool.folder, names),
        add=str(host.pool.folder / store) if host.pool.exists(store) else "",
        target=STORE_DRIVE,
        without=frozenset(name for name in _read_once(node) if not host.pool.exists(name)),
    )


def _read_once(node: NodePlan) -> frozenset[str]:
    """The names of volumes that only the first boot reads."""
    return frozenset(volume.name for volume in node.volumes if volume.role in ("seed", "answer", "media"))


def _redefine(run: Run, node: NodePlan, progress: Progress) -> None:
    """Change what differs in the definition, all at once."""
    xml = definitions.with_secrets(run.on(node).conn, node)
    if xml is None:
        return
    parts = frozenset(one.part for one in _compare(run, node, xml) if one.part)
    if not parts:
        return  # another finding's repair has done it
    progress.say(", ".join(sorted(parts)))
    password = run.folder.credentials().nodes[node.name].vnc_password
    definitions.change(run.on(node).conn, node, machine_xml.changed(xml, _wanted(run, node, password), parts))
