"""What inspections look at, and what they tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Protocol

from winlab.design.plan.model import NodePlan
from winlab.engine.run import Run
from winlab.engine.state import Kind
from winlab.events import Progress

Area = Literal["folder", "network", "volume", "machine", "node", "cluster"]
Mend = Callable[[Progress], None]


@dataclass(frozen=True)
class Drift:
    """One thing of a lab that is not as planned.

    ``node`` is empty for what is not a node's. ``actual`` is what is there in place of ``expected``. ``action`` says
    what ``repair`` does, or what a person can do where it does nothing (``mendable``).
    """

    area: Area
    node: str
    what: str
    expected: str
    actual: str
    action: str
    mendable: bool
    mended: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is about, however it looks."""
        return self.area, self.node, self.what


class Tier(IntEnum):
    """What is mended before what: a start needs its disks and CDs, a login the network, a service its configuration, a
    join the API server.
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
    """A drift with its mending: what is done first, and the steps of ``create`` that are run then.

    :param steps: of the drift's node; those of the lab if it has none.
    :param lab_steps: steps of the lab besides.
    :param cuts_off: nothing of the lab can be reached meanwhile.
    :param unreached: it may only mean that something else is in the way; it counts if nothing else is.
    """

    drift: Drift
    mend: Mend | None = None
    steps: tuple[Kind, ...] = ()
    lab_steps: tuple[Kind, ...] = ()
    unreached: bool = False
    cuts_off: bool = False
    tier: Tier = Tier.HOST


@dataclass(frozen=True)
class Subject:
    """What is inspected.

    :param nodes: whose things are.
    :param cluster: whether the lab was made beyond guests that answer.
    :param digests: whether to read base volumes whole.
    """

    run: Run
    nodes: tuple[NodePlan, ...]
    cluster: bool
    digests: bool = False


class Inspection(Protocol):
    """Compares one kind of thing with the plan; changes nothing."""

    def __call__(self, subject: Subject, progress: Progress, /) -> Iterable[Finding]:
        """What differs.

        :raises WinlabError: it can't be found out.
        """
