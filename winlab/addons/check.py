"""What an add-on adds to ``winlab test``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from winlab.adapters.kube.kubectl import Kubectl
    from winlab.design.plan.tags import Tag


@dataclass(frozen=True)
class Cluster:
    """A cluster under test: its API server, and its nodes."""

    kubectl: Kubectl
    nodes: tuple[Tag, ...]


@dataclass(frozen=True)
class Check:
    """A row of ``winlab test readiness``; checked repeatedly until it passes.

    :param where: what it is about, for display: ``Linux nodes``.
    :param seconds: seconds on hardware without progress in the cluster after which it has failed.
    :param look: returns what was seen; raises WinlabError if the check fails (so far).
    :param windows: it is about Windows nodes: skipped if the lab has none.
    :param real: it needs real Windows: skipped in a rehearsal.
    """

    title: str
    where: str
    seconds: float
    look: Callable[[Cluster], str]
    windows: bool = False
    real: bool = False
