"""All inspections, and their combined findings. A new kind of object needs a function in a module and a line here.

They query the real objects and change nothing, except for OVN's sequence number, which its daemons respond to.
"""

from __future__ import annotations

from winlab.errors import WinlabError
from winlab.events import Progress
from winlab.operations.drift import clocks, cluster, folder, machines, network, nodes, volumes
from winlab.operations.drift.folder import ACCESS
from winlab.operations.drift.model import Area, Drift, Finding, Inspection, Subject

# In order of dependency: guests can't be asked without network and credentials
EVERY: tuple[tuple[Area, Inspection], ...] = (
    ("folder", folder.credentials),
    ("folder", folder.cluster_access),
    ("network", network.bridge),
    ("network", network.firewall_table),
    ("network", network.attachment),
    ("network", network.rows),
    ("network", network.daemons),
    ("volume", volumes.own),
    ("volume", volumes.inserted),
    ("volume", volumes.bases),
    ("machine", machines.states),
    ("machine", machines.hardware),
    ("network", network.ports),
    ("node", nodes.guests),
    ("node", clocks.clocks),
    ("cluster", cluster.members),
    ("cluster", cluster.identities),
    ("cluster", cluster.objects),
    ("cluster", cluster.routes),
    ("cluster", cluster.names),
)
REACHING: tuple[Area, ...] = ("node", "cluster")  # these ask guests: without a way to reach them they would only wait


def inspect(subject: Subject, progress: Progress) -> list[Finding]:
    """All drift, each item once.

    What could not be inspected is reported, too. A drift that only says that something can't be reached is left out if
    another drift may be the cause: it is inspected again once that one is repaired.
    """
    findings: dict[tuple[str, str, str], Finding] = {}
    for area, inspection in EVERY:
        if area in REACHING and any(one.cuts_off for one in findings.values()):
            continue
        try:
            for one in inspection(subject, progress):
                findings.setdefault(one.drift.key, one)
        except WinlabError as error:
            told = _can_t(area, inspection, error)
            findings.setdefault(told.drift.key, told)
        except (LookupError, TypeError, AttributeError, ValueError) as error:  # from an unexpected answer
            strange = WinlabError(f"{type(error).__name__}: {error}", cure="Look at it with 'winlab kubectl' or virsh.")
            told = _can_t(area, inspection, strange)
            findings.setdefault(told.drift.key, told)
    in_the_way = [one.drift for one in findings.values() if one.drift.repairable and not one.unreached]
    return [one for one in findings.values() if not (one.unreached and _explained(one.drift, in_the_way))]


def _can_t(area: Area, inspection: Inspection, error: WinlabError) -> Finding:
    name = getattr(inspection, "__name__", "inspection")
    action = error.cure or error.why
    return Finding(Drift(area, "", f"inspection of {name}", "possible", error.what, action, repairable=False))


def _explained(drift: Drift, others: list[Drift]) -> bool:
    """Whether another drift, of the lab or of the same node, may be why something can't be reached.

    The API server runs on nodes: a drift of any node may be why. A login needs no cluster.
    """
    if drift.area == "node":
        others = [one for one in others if one.area in ("folder", "network", "machine") and one.what not in ACCESS]
    return any(not drift.node or other.node in ("", drift.node) for other in others)
