"""Shows a lab's nodes to people: what the machines are, what Kubernetes says, and what is not as it should be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from winlab import settings
from winlab.cli.common import print_table, say
from winlab.cli.progress import about as roughly

if TYPE_CHECKING:
    from winlab import Lab, LabFacts, NodeStatus
    from winlab.design.fault import Fault
    from winlab.hosts import HostStatus

COLUMNS = ("NODE", "ON", "STATE", "KUBERNETES", "ADDRESS", "FROM HOST", "ROLE", "IMAGE", "MEMORY", "NOTES")
DROP = ("ADDRESS", "ON")  # if there is no room for the notes
DETAILS = ("ROLE", "IMAGE", "MEMORY")
HOSTS = ("HYPERVISOR", "STATE", "NODES", "MEMORY", "FREE")


def show(lab: Lab, statuses: Sequence[NodeStatus], faults: Sequence[Fault]) -> None:
    """Print a lab's nodes: a line about the lab, a table, and a sentence for what a note does not explain."""
    from winlab.design.plan.facts import HYPERVISOR

    recorded = lab.about()
    say(headline(lab.name, statuses, recorded, time.time()))
    several = any(node.hypervisor != HYPERVISOR for node in statuses)
    rows = [row(node, recorded, faults, on=several) for node in statuses]
    print_table(COLUMNS, rows, drop=DROP, details=DETAILS)
    if several:
        # one that did not answer just now would take seconds once more
        _show_hosts(lab.hypervisors(statuses, ask=not lab.site.silent))
    for node in statuses:
        if node.problem:
            say(f"{node.tag.node}: {node.problem}")
        for program in node.pushed:
            say(f"{node.tag.node}: {program}.")
    for left in lab.left():
        say(left)
    if starting := [node.tag.node for node in statuses if node.autostart]:
        some = f"Of its nodes these start with the host: {', '.join(starting)}."
        say("The lab starts with the host." if len(starting) == len(statuses) else some)
    flag = "" if lab.name == settings.DEFAULT_LAB else f" --lab {lab.name}"
    if (user := lab.protected_by()) is not None:
        by = f" by {user}" if user else ""
        say(f"The lab is protected{by}; 'winlab protect --off{flag}' ends that.")
    if faults:
        labels = ", ".join(fault.label for fault in faults)
        say(f"Injected faults: {labels}. 'winlab fault clear{flag}' ends them.")


def _show_hosts(hosts: Sequence[HostStatus]) -> None:
    def size(mib: int | None) -> str:
        return "" if mib is None else f"{mib / 1024:.1f} GiB"

    print_table(
        HOSTS,
        [[one.name, one.state, ", ".join(one.nodes), size(one.memory_mib), size(one.free_mib)] for one in hosts],
    )


def headline(lab: str, statuses: Sequence[NodeStatus], recorded: LabFacts, now: float) -> str:
    """``lab   2 of 2 nodes Ready   Kubernetes v1.37.2   l3   made 2 h ago``.

    :param now: seconds since 1970.
    """
    members = [node for node in statuses if node.tag.is_member]
    if any(node.kubernetes for node in members):
        ready = f"{sum(node.kubernetes == 'Ready' for node in members)} of {len(members)} nodes Ready"
    else:  # no cluster, or its API server does not answer
        ready = f"{sum(node.answers is True for node in statuses)} of {len(statuses)} nodes answer"
    version = f"Kubernetes {recorded.version}" if recorded.version else ""
    made = "" if recorded.made is None else f"made {_age(max(0.0, now - recorded.made))} ago"
    return "   ".join(filter(None, (lab, ready, version, recorded.cni, recorded.attachment, made)))


def _age(seconds: float) -> str:
    return roughly(seconds) if seconds < 36 * 3600 else f"{round(seconds / 86400)} days"


def row(node: NodeStatus, recorded: LabFacts, faults: Sequence[Fault], *, on: bool) -> list[str]:
    """A node's line, as :data:`COLUMNS` has it.

    :param on: whether to name its hypervisor.
    """
    from winlab.design.spec.sizes import human

    tag, memory = node.tag, recorded.memory.get(node.tag.node)
    place, size = node.hypervisor if on else "", human(memory) if memory else ""
    kubernetes = node.kubernetes or "-"
    return [tag.node, place, node.state, kubernetes, tag.address, tag.floating, tag.role, tag.image, size,
            notes(node, faults)]  # fmt: skip


def notes(node: NodeStatus, faults: Sequence[Fault]) -> str:
    """What is not as it should be, in a few words."""
    said = []
    if node.answers is False:
        said.append("does not answer")
    elif node.problem:
        said.append("wrong clock" if node.answers else "see below")
    said += [f"own {program.program}" for program in node.pushed]
    said += [f"fault: {fault.kind}" for fault in faults if node.tag.node in fault.nodes]
    return "; ".join(said)
