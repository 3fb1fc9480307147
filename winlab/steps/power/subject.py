"""What these steps work on: a machine of an existing lab."""

from __future__ import annotations

from dataclasses import dataclass

from winlab.adapters.vm import domains
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor
from winlab.engine.lab_on_site import LabOnSite
from winlab.engine.state import Kind, State
from winlab.steps.power import clock


@dataclass
class Subject:
    """A machine that a command switches, and what became of it.

    :param machine: as it was when the command began.
    :param since: when the command started or resumed it, by the host's clock in seconds; None: it ran before.
    :param booted: whether it was off before that.
    :param stepped: seconds by which its clock was set forward, or back if negative.
    """

    lab: LabOnSite
    machine: Machine
    since: float | None = None
    booted: bool = False
    stepped: float = 0.0

    @property
    def name(self) -> str:
        """The node's name."""
        return self.machine.tag.node

    @property
    def host(self) -> Hypervisor:
        """The hypervisor that it is on."""
        return self.lab.on(self.machine)

    @property
    def domain(self) -> str:
        """The domain's name."""
        return self.machine.domain

    @property
    def uuid(self) -> str:
        """The domain's UUID."""
        return self.machine.uuid

    @property
    def is_controller(self) -> bool:
        """Whether it is a controller of the lab's cluster."""
        return self.machine.tag.role == "controller"

    @property
    def state(self) -> str:
        """The machine's state now, in a word."""
        return domains.state(self.host.conn, self)

    @property
    def skew(self) -> float:
        """How many seconds a fault puts its clock ahead of the host's; 0 if there is no such fault."""
        return clock.skew(self.host.conn, self)

    def at(self, kind: Kind) -> State:
        """This node's state of this kind."""
        return kind(self.lab.name, self.name)
