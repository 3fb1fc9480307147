"""winlab: a hybrid Kubernetes lab on your own hypervisor, in one command.

The names below are public; docs/api.md explains how to use them. They are imported when first used (PEP
562), so that the command starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.checks.report import Report
    from winlab.design.plan.model import Plan
    from winlab.design.spec.model import Spec
    from winlab.errors import (
        AccessError,
        ClusterError,
        ConflictError,
        ExitCode,
        Failure,
        GuestError,
        HostError,
        LabError,
        NotFoundError,
        StalledError,
        TransferError,
        UnreachableError,
        UsageError,
        WinlabError,
    )
    from winlab.events import (
        Event,
        Listener,
        NodeCrashed,
        NodeTransport,
        Note,
        RunEnded,
        RunStarted,
        StepChecking,
        StepDone,
        StepEvent,
        StepFailed,
        StepProgress,
        StepSkipped,
        StepStarted,
    )
    from winlab.history.timeline import Timeline
    from winlab.lab import Lab
    from winlab.node import Node
    from winlab.operations.diff import Difference
    from winlab.operations.drift.model import Drift
    from winlab.operations.explain import Explained
    from winlab.operations.planning import Proposal
    from winlab.operations.watch import View
    from winlab.site import Site
    from winlab.steps.payload import Origin
    from winlab.stopping import Stopped
    from winlab.supplies import Supplies
    from winlab.version import __version__

__all__ = [
    "AccessError",
    "ClusterError",
    "ConflictError",
    "Difference",
    "Drift",
    "Event",
    "ExitCode",
    "Explained",
    "Failure",
    "GuestError",
    "HostError",
    "Lab",
    "LabError",
    "Listener",
    "Node",
    "NodeCrashed",
    "NodeTransport",
    "NotFoundError",
    "Note",
    "Origin",
    "Plan",
    "Proposal",
    "Report",
    "RunEnded",
    "RunStarted",
    "Site",
    "Spec",
    "StalledError",
    "StepChecking",
    "StepDone",
    "StepEvent",
    "StepFailed",
    "StepProgress",
    "StepSkipped",
    "StepStarted",
    "Stopped",
    "Supplies",
    "Timeline",
    "TransferError",
    "UnreachableError",
    "UsageError",
    "View",
    "WinlabError",
    "__version__",
]
_HOMES = {
    "Drift": "winlab.operations.drift.model",
    "Difference": "winlab.operations.diff",
    "Explained": "winlab.operations.explain",
    "Lab": "winlab.lab",
    "Node": "winlab.node",
    "Origin": "winlab.steps.payload",
    "Plan": "winlab.design.plan.model",
    "Proposal": "winlab.operations.planning",
    "Report": "winlab.checks.report",
    "Site": "winlab.site",
    "Spec": "winlab.design.spec.model",
    "Stopped": "winlab.stopping",
    "Supplies": "winlab.supplies",
    "Timeline": "winlab.history.timeline",
    "View": "winlab.operations.watch",
    "__version__": "winlab.version",
    **dict.fromkeys(
        (
            "AccessError",
            "ClusterError",
            "ConflictError",
            "ExitCode",
            "Failure",
            "GuestError",
            "HostError",
            "LabError",
            "NotFoundError",
            "StalledError",
            "TransferError",
            "UnreachableError",
            "UsageError",
            "WinlabError",
        ),
        "winlab.errors",
    ),
    **dict.fromkeys(
        (
            "Event",
            "Listener",
            "NodeCrashed",
            "NodeTransport",
            "Note",
            "RunEnded",
            "RunStarted",
            "StepChecking",
            "StepDone",
            "StepEvent",
            "StepFailed",
            "StepProgress",
            "StepSkipped",
            "StepStarted",
        ),
        "winlab.events",
    ),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'winlab' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
