"""``winlab test``: a suite of checks, run on an existing lab."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.checks import access
from winlab.checks import readiness as gates
from winlab.checks import smoke as pods
from winlab.checks.gates import GATES, SYSTEM
from winlab.checks.model import choose
from winlab.checks.report import Report
from winlab.checks.rows import ROWS
from winlab.design.addon import registry
from winlab.events import Listener
from winlab.site import Site


@dataclass(frozen=True)
class Check:
    """A check that a suite makes. ``source`` and ``target`` are display names."""

    id: str
    suite: str
    title: str
    source: str
    target: str


def checks() -> list[Check]:
    """All checks of the suites, in their order. An add-on has one here, whose identifier stands for all of its own."""
    return [
        *(Check(one.id, "readiness", one.title, one.where, "") for one in GATES),
        *(Check(name, "readiness", one.summary, SYSTEM, "") for name, one in registry().items()),
        *(Check(one.id, "smoke", one.title, one.source, one.target) for one in ROWS),
    ]


def readiness(lab: str, site: Site, tell: Listener, *, only: str | None = None, timeout: float | None = None) -> Report:
    """Wait until every part of the lab's cluster is ready.

    :param only: identifiers of gates, with commas between; None: all.
    :param timeout: seconds after which gates have failed that do not pass, even if the cluster makes progress.
    :raises UsageError: *only* names a gate that does not exist; nothing was touched.
    :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
    :raises OffError: none of its controllers runs.
    """
    gates.chosen_gates(only)
    tags, reach = access.of(lab, site)
    return gates.run(lab, tags, reach, tell, only=only, timeout=timeout)


def smoke(lab: str, site: Site, tell: Listener, *, only: str | None = None, keep: bool = False) -> Report:
    """Run pods on the lab's nodes, and judge how they talk to each other, to services, and to the outside.

    :param only: identifiers of rows, with commas between; None: all.
    :param keep: leave the pods for inspection.
    :raises UsageError: *only* names a row that does not exist; nothing was touched.
    :raises NotFoundError: there is no such lab, or it has no cluster that this account can use.
    :raises OffError: none of its controllers runs.
    :raises ClusterError: the API server does not answer, or refuses the pods.
    """
    choose([row.id for row in ROWS], only)
    tags, reach = access.of(lab, site)
    return pods.run(lab, tags, reach, tell, only=only, keep=keep)
