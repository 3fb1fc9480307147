"""What inspections look at, and what they report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol

from winlab.design.plan.node_plan import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import Kind
from winlab.events import Progress

Area = Literal["folder", "network", "volume", "machine", "node", "cluster"]
Repair = Callable[[Progress], None]


@dataclass(frozen=True)
class Drift:
    """One way in which a lab differs from its plan.

    ``node`` is empty for what does not belong to a node. ``actual`` is what was found in place of ``expected``.
    ``action`` says what ``repair`` does or, if it can do nothing (``repairable``), what the user can do.
    """

    area: Area
    node: str
    what: str
    expected: str
    actual: str
    action: str
    repairable: bool
    repaired: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is about, regardless of how it differs."""
        return self.area, self.node, self.what


class Tier(IntEnum):
    """The order of repairs: a start needs its disks and CDs, a login the network, a service its configuration, a join
    the API server.
    """

    HOST = 0
    START = 1
    LOGIN = 2
    CONFIG = 3
    SERVICE = 4
    ACCESS = 5
    CLUSTER = 6


@dataclass(frozen=True)
class Finding:
    """A drift with its repair: what is done first, and the steps of ``create`` that run then.

    :param steps: of the drift's node; those of the lab if it has none.
    :param lab_steps: steps of the lab, in addition.
    :param cuts_off: nothing in the lab can be reached during the repair.
    :param unreached: it may be a mere symptom; it counts only if there is no other cause.
    """

    drift: Drift
    repair: Repair | None = None
    steps: tuple[Kind, ...] = ()
    lab_steps: tuple[Kind, ...] = ()
    unreached: bool = False
    cuts_off: bool = False
    tier: Tier = Tier.HOST


@dataclass(frozen=True)
class Subject:
    """What is inspected.

    :param nodes: the nodes to inspect.
    :param cluster: whether the lab has a cluster: it was created beyond guests that answer.
    :param digests: whether to read base volumes whole.
    """

    run: Run
    nodes: tuple[NodePlan, ...]
    cluster: bool
    digests: bool = False


class Inspection(Protocol):
    """Compares one kind of object with the plan; changes nothing."""

    def __call__(self, subject: Subject, progress: Progress, /) -> Iterable[Finding]:
        """What differs.

        :raises WinlabError: it can't be found out.
        """
