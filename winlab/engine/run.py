"""A run: a plan in progress, with everything that its steps share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan import facts, tags
from winlab.design.plan.model import NodePlan, Plan
from winlab.design.plan.stock import Stock
from winlab.engine.durations import Durations
from winlab.engine.state import State
from winlab.errors import WinlabError
from winlab.lab_folder import LabFolder
from winlab.site import Site

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """How fast guests run on this host.

    :param scale: how much slower than on hardware a guest runs here, roughly.
    :param known: how long things took before.
    """

    scale: float
    known: Durations

    @classmethod
    def of(cls, plan: Plan) -> Pace:
        """The pace of the plan's host."""
        return cls(plan.host.scale, Durations(plan.host.accelerator))

    def usual(self, seconds: float) -> float:
        """How long something usually takes here if it takes *seconds* on hardware."""
        return seconds * self.scale

    def silence(self, seconds: float) -> float:
        """How long a guest may be silent here if it may be for *seconds* on hardware; grows less than times."""
        return facts.silence(seconds, self.scale)


@dataclass(frozen=True)
class Sources:
    """What the user says about where images come from.

    :param mirror: a URL prefix or folder to take images from, instead of their own sites.
    :param consent: the user accepted the terms of Microsoft's evaluation media; missing media may be downloaded.
    :param check_images: compares the images with the lock file, whenever one has arrived.
    """

    mirror: str | None = None
    consent: bool = False
    check_images: Callable[[], None] | None = None


class Outputs:
    """What steps made for other steps, by the states that they reached. Shared by all labs of a run."""

    def __init__(self) -> None:
        self._made: dict[State, object] = {}
        self._lock = threading.Lock()

    def put(self, state: State, output: object) -> None:
        """Keep what the step that reaches *state* made."""
        with self._lock:
            self._made[state] = output

    def get(self, state: State, kind: type[T]) -> T | None:
        """What was made for that state in this run; None if the state was reached before."""
        with self._lock:
            output = self._made.get(state)
        assert output is None or isinstance(output, kind)
        return output


@dataclass(frozen=True)
class Run:
    """A plan in progress: everything that its steps use."""

    plan: Plan
    folder: LabFolder
    conn: Connection
    pool: StoragePool
    pace: Pace
    stock: Stock = field(default_factory=Stock)  # where to find the files that the plan knows by their contents
    sources: Sources = Sources()
    outputs: Outputs = field(default_factory=Outputs)
    keeps_disks: bool = False  # no machine gets a new disk, not even one that nobody has used yet

    @classmethod
    def start(cls, plan: Plan, stock: Stock, site: Site, conn: Connection, sources: Sources | None = None) -> Run:
        """A run of the plan on a hypervisor."""
        return cls(plan, site.folder(plan.lab), conn, site.pool(conn), Pace.of(plan), stock, sources or Sources())

    @property
    def lab(self) -> str:
        """The lab's name."""
        return self.plan.lab

    def beside(self, plan: Plan) -> Run:
        """A run of another plan at the same time, such as a golden image's; both share their outputs."""
        return replace(self, plan=plan, folder=LabFolder(plan.lab))

    def node(self, node: NodePlan) -> NodeScripts:
        """A node, to run scripts in; a context manager that logs out."""
        return NodeScripts(tags.of(self.plan, node), self.folder, self.pace.scale)

    def asks(self, node: NodePlan, question: Callable[[NodeScripts], bool]) -> Callable[[], bool]:
        """A step's ``done`` that asks the node; a node that does not answer counts as not done."""

        def done() -> bool:
            try:
                with self.node(node) as there:
                    return question(there)
            except WinlabError:
                return False

        return done
