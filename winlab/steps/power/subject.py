"""What these steps are about: a standing lab, and a machine of it."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.adapters.vm import domains
from winlab.adapters.vm.connection import Connection
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.volumes import StoragePool
from winlab.design.plan.facts import HostFacts
from winlab.engine.durations import Durations
from winlab.engine.run import Pace
from winlab.engine.state import Kind, State
from winlab.lab_folder import LabFolder
from winlab.steps.power import clock


@dataclass(frozen=True)
class StandingLab:
    """A lab, where its machines are, and how fast they run."""

    folder: LabFolder
    conn: Connection
    pool: StoragePool
    facts: HostFacts

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.folder.lab

    @property
    def pace(self) -> Pace:
        """How fast guests run here."""
        return Pace(self.facts.scale, Durations(self.facts.accelerator))


@dataclass
class Subject:
    """A machine that a command switches, and what became of it.

    :param machine: as it was when the command began.
    :param since: when the command had it go on, by the host's clock in seconds; None: it ran before.
    :param booted: whether it was off before that.
    :param stepped: seconds by which its clock was set forward, or back if negative.
    """

    lab: StandingLab
    machine: Machine
    since: float | None = None
    booted: bool = False
    stepped: float = 0.0

    @property
    def name(self) -> str:
        """The node's name."""
        return self.machine.tag.node

    @property
    def domain(self) -> str:
        """The domain's name."""
        return self.machine.domain

    @property
    def is_controller(self) -> bool:
        """Whether it is a controller of the lab's cluster."""
        return self.machine.tag.role == "controller"

    @property
    def state(self) -> str:
        """The machine's state now, in a word."""
        return domains.state(self.lab.conn, self.domain)

    @property
    def skew(self) -> float:
        """By how many seconds its clock is to be ahead of the host's, by a fault on purpose; 0 if there is none."""
        return clock.skew(self.lab.conn, self.domain)

    def at(self, kind: Kind) -> State:
        """The state of this kind of this node."""
        return kind(self.lab.name, self.name)
