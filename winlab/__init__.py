"""winlab: a hybrid Kubernetes lab on your own hypervisor, in one command.

The names below are public; docs/api.md tells how to use them. They are imported when they are first asked for (PEP
562), so that the command starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.design.plan.model import Plan
    from winlab.design.spec.model import Spec
    from winlab.errors import (
        AccessError,
        ClusterError,
        ConflictError,
        GuestError,
        HostError,
        NotFoundError,
        StalledError,
        TransferError,
        UnreachableError,
        UsageError,
        WinlabError,
    )
    from winlab.events import Event, Listener
    from winlab.lab import Lab, Node
    from winlab.site import Site
    from winlab.steps.payload import Origin

__version__ = "0.1.0"
__all__ = [
    "AccessError",
    "ClusterError",
    "ConflictError",
    "Event",
    "GuestError",
    "HostError",
    "Lab",
    "Listener",
    "Node",
    "NotFoundError",
    "Origin",
    "Plan",
    "Site",
    "Spec",
    "StalledError",
    "TransferError",
    "UnreachableError",
    "UsageError",
    "WinlabError",
    "__version__",
]
_HOMES = {
    "Event": "winlab.events",
    "Lab": "winlab.lab",
    "Listener": "winlab.events",
    "Node": "winlab.lab",
    "Origin": "winlab.steps.payload",
    "Plan": "winlab.design.plan.model",
    "Site": "winlab.site",
    "Spec": "winlab.design.spec.model",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'winlab' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES.get(name, "winlab.errors")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
