"""winlab: a hybrid Kubernetes lab on your own hypervisor, in one command.

The names below are public; docs/api.md explains how to use them. They are imported when first used (PEP
562), so that the command starts quickly. Type checkers see the imports, Python the table.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.checks.report import Report as Report
    from winlab.design.plan.model import Plan as Plan
    from winlab.design.spec.model import Spec as Spec
    from winlab.errors import AccessError as AccessError
    from winlab.errors import ClusterError as ClusterError
    from winlab.errors import ConflictError as ConflictError
    from winlab.errors import ExitCode as ExitCode
    from winlab.errors import Failure as Failure
    from winlab.errors import GuestError as GuestError
    from winlab.errors import HostError as HostError
    from winlab.errors import LabError as LabError
    from winlab.errors import NotFoundError as NotFoundError
    from winlab.errors import StalledError as StalledError
    from winlab.errors import TransferError as TransferError
    from winlab.errors import UnreachableError as UnreachableError
    from winlab.errors import UsageError as UsageError
    from winlab.errors import WinlabError as WinlabError
    from winlab.events import Event as Event
    from winlab.events import Listener as Listener
    from winlab.events import NodeCrashed as NodeCrashed
    from winlab.events import NodeTransport as NodeTransport
    from winlab.events import Note as Note
    from winlab.events import RunEnded as RunEnded
    from winlab.events import RunStarted as RunStarted
    from winlab.events import StepChecking as StepChecking
    from winlab.events import StepDone as StepDone
    from winlab.events import StepEvent as StepEvent
    from winlab.events import StepFailed as StepFailed
    from winlab.events import StepProgress as StepProgress
    from winlab.events import StepSkipped as StepSkipped
    from winlab.events import StepStarted as StepStarted
    from winlab.history.timeline import Timeline as Timeline
    from winlab.hosts import Hosts as Hosts
    from winlab.lab import Lab as Lab
    from winlab.lab_snapshots import Snapshots as Snapshots
    from winlab.lab_snapshots import all_snapshots as all_snapshots
    from winlab.lab_snapshots import import_snapshot as import_snapshot
    from winlab.node import Node as Node
    from winlab.operations.clusters import ClusterVerdict as ClusterVerdict
    from winlab.operations.clusters import Nearby as Nearby
    from winlab.operations.diff import Difference as Difference
    from winlab.operations.drift.model import Drift as Drift
    from winlab.operations.explain import Explained as Explained
    from winlab.operations.look import LabFacts as LabFacts
    from winlab.operations.look import NodeStatus as NodeStatus
    from winlab.operations.look import Overview as Overview
    from winlab.operations.planning import Proposal as Proposal
    from winlab.operations.watch import View as View
    from winlab.site import Site as Site
    from winlab.steps.sources import Origin as Origin
    from winlab.stopping import Stopped as Stopped
    from winlab.supplies import Supplies as Supplies
    from winlab.version import __version__ as __version__

_NAMES = {
    "winlab.checks.report": "Report",
    "winlab.design.plan.model": "Plan",
    "winlab.design.spec.model": "Spec",
    "winlab.errors": "AccessError ClusterError ConflictError ExitCode Failure GuestError HostError LabError "
    "NotFoundError StalledError TransferError UnreachableError UsageError WinlabError",
    "winlab.events": "Event Listener NodeCrashed NodeTransport Note RunEnded RunStarted StepChecking StepDone "
    "StepEvent StepFailed StepProgress StepSkipped StepStarted",
    "winlab.history.timeline": "Timeline",
    "winlab.hosts": "Hosts",
    "winlab.lab": "Lab",
    "winlab.lab_snapshots": "Snapshots all_snapshots import_snapshot",
    "winlab.node": "Node",
    "winlab.operations.clusters": "Nearby ClusterVerdict",
    "winlab.operations.diff": "Difference",
    "winlab.operations.drift.model": "Drift",
    "winlab.operations.explain": "Explained",
    "winlab.operations.look": "LabFacts NodeStatus Overview",
    "winlab.operations.planning": "Proposal",
    "winlab.operations.watch": "View",
    "winlab.site": "Site",
    "winlab.steps.sources": "Origin",
    "winlab.stopping": "Stopped",
    "winlab.supplies": "Supplies",
    "winlab.version": "__version__",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'winlab' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
