"""A lab on its site: its folder, the hypervisors that its nodes are on, their pace, and its overlay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from winlab.adapters.guests.base import Guest
from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.overlay.ovn import Northbound
from winlab.adapters.vm.domains import Machine
from winlab.adapters.vm.hypervisor import Hypervisor, Hypervisors, Placed
from winlab.design.plan import facts
from winlab.design.plan.facts import MachineFacts
from winlab.engine.durations import Durations
from winlab.lab_folder import LabFolder
from winlab.site import Site


@dataclass(frozen=True)
class Pace:
    """How fast guests run on a lab's hypervisors.

    :param scale: how much slower than on hardware a guest runs here, roughly.
    :param known: how long things took before.
    """

    scale: float
    known: Durations

    @classmethod
    def of(cls, machines: Iterable[MachineFacts]) -> Pace:
        """The pace of the slowest of these machines."""
        slowest = max(machines, key=lambda one: one.scale)
        return cls(slowest.scale, Durations(slowest.accelerator))

    def usual(self, seconds: float) -> float:
        """How long something usually takes here if it takes *seconds* on hardware."""
        return seconds * self.scale

    def silence(self, seconds: float) -> float:
        """How long a guest may be silent here if it may be for *seconds* on hardware; grows less than ``usual``."""
        return facts.silence(seconds, self.scale)


@dataclass(frozen=True)
class LabOnSite:
    """A lab, and the site that it is on: everything that is needed to work with its machines."""

    folder: LabFolder
    site: Site
    hypervisors: Hypervisors
    pace: Pace

    @classmethod
    def find(cls, lab: str, site: Site, hypervisors: Hypervisors) -> LabOnSite:
        """A lab found by its name alone; no plan is needed.

        :raises UsageError: the facts of a hypervisor can't be read.
        """
        return cls(site.folder(lab), site, hypervisors, Pace.of(one.facts for one in hypervisors))

    @property
    def name(self) -> str:
        """The lab's name."""
        return self.folder.lab

    def on(self, node: Placed) -> Hypervisor:
        """The hypervisor that a node is on."""
        return self.hypervisors.on(node)

    def hosts(self, nodes: Iterable[Placed]) -> list[Hypervisor]:
        """The hypervisors that these nodes are on, each once."""
        return [self.on(node) for node in {node.hypervisor: node for node in nodes}.values()]

    def overlay(self) -> AbstractContextManager[Northbound]:
        """A connection to OVN's northbound database, for the length of a with-block."""
        return self.site.overlay()

    def machines(self) -> list[Machine]:
        """The lab's machines, sorted."""
        return self.hypervisors.machines(self.name)

    def scripts(self, machine: Machine, log_in: Callable[[], Guest] | None = None) -> NodeScripts:
        """A login to run scripts in a machine; a context manager that logs out.

        :param log_in: how to log in; by default as the machine's system does.
        """
        return NodeScripts(machine.tag, self.folder, self.on(machine).facts.scale, log_in)
