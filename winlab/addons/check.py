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
    """A row of ``winlab test readiness``; it is checked repeatedly until it holds.

    :param where: what it is about, in words: ``Linux nodes``.
    :param seconds: how long, on hardware, the cluster may show nothing new before it has failed.
    :param look: returns what was seen; raises WinlabError if it does not hold (yet).
    :param windows: it is about Windows nodes: skipped if the lab has none.
    :param real: it needs a real Windows: skipped in a rehearsal.
    """

    title: str
    where: str
    seconds: float
    look: Callable[[Cluster], str]
    windows: bool = False
    real: bool = False
