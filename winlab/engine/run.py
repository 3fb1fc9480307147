"""A run: a plan in progress, with everything that its steps share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm.hypervisor import Hypervisors
from winlab.design.plan import tags
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.plan.stock import Stock
from winlab.engine.lab_on_site import LabOnSite, Pace
from winlab.engine.state import State
from winlab.errors import WinlabError
from winlab.site import Site

T = TypeVar("T")


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
class Run(LabOnSite):
    """A plan in progress: everything that its steps use."""

    plan: Plan
    stock: Stock = field(default_factory=Stock)  # where to find the files that the plan knows by their contents
    sources: Sources = Sources()
    outputs: Outputs = field(default_factory=Outputs)
    keeps_disks: bool = False  # no machine gets a new disk, not even one that has not been used yet

    @classmethod
    def start(
        cls, plan: Plan, stock: Stock, site: Site, hypervisors: Hypervisors, sources: Sources | None = None
    ) -> Run:
        """A run of the plan on a site, by the facts that the plan was made from."""
        known = plan.hypervisors
        each = tuple(
            replace(one, read_facts=partial(known.__getitem__, one.name)) if one.name in known else one
            for one in hypervisors
        )
        planned = replace(hypervisors, each=each)
        return cls(site.folder(plan.lab), site, planned, Pace.of(known.values()), plan, stock, sources or Sources())

    @property
    def lab(self) -> str:
        """The lab's name."""
        return self.plan.lab

    def beside(self, plan: Plan) -> Run:
        """A run of another plan at the same time, such as a golden image's; both share their outputs."""
        return replace(self, plan=plan, folder=self.site.folder(plan.lab))

    def node(self, node: NodePlan) -> NodeScripts:
        """A login to run scripts in a node; a context manager that logs out."""
        return NodeScripts(tags.of(self.plan, node), self.folder, self.on(node).facts.scale)

    def asks(self, node: NodePlan, question: Callable[[NodeScripts], bool]) -> Callable[[], bool]:
        """A step's ``done`` that asks the node; a node that does not answer counts as not done."""

        def done() -> bool:
            try:
                with self.node(node) as there:
                    return question(there)
            except WinlabError:
                return False

        return done
