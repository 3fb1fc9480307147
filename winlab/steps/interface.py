"""What the shared steps need from a node's system, and from its cluster's distribution: the behaviour that differs.

Plain facts, such as a usual time, are in winlab/design/system/ and winlab/design/distribution/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from winlab.design.contract.call import Call
from winlab.design.contract.on_both import Service
from winlab.design.plan.node_plan import LinuxNode, WindowsNode
from winlab.engine.state import Kind, State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps.evidence import DiskLog


@dataclass(frozen=True)
class Condition:
    """What a node reports about itself: its services by name, and whether it is a member of the cluster.

    A stale service runs, but for a network that is gone. *changed* lists what differs on a member from what winlab
    renders, such as a file by its path, with the kind of the step that fixes it.
    """

    services: Mapping[str, Service | Literal["stale"]]
    joined: bool
    changed: Mapping[str, Kind] = field(default_factory=dict)


class SystemSteps(Protocol):
    """One node's own part of the steps; :func:`winlab.steps.systems.of` has it."""

    @property
    def ready_command(self) -> str:
        """A command line in the guest that succeeds once its first boot is complete."""

    @property
    def last_phase(self) -> str | None:
        """The last phase that the serial port reports before a login can work; None: a login may work in any phase."""

    @property
    def bootstrap_log(self) -> str:
        """The log of the first boot, as a path in the guest."""

    @property
    def bootstrap_cure(self) -> str:
        """What a user can do after the first boot failed."""

    def image(self, progress: Progress) -> Path:
        """The node's image as a local file; obtains it if it is missing.

        :raises NotFoundError: it can't be obtained; the message lists what to do.
        """

    def check_image(self, image: Path) -> None:
        """Check that the node can be made from this file.

        :raises UsageError: it can't.
        """

    def image_seconds(self) -> float:
        """How long obtaining the image and uploading it usually takes, in seconds."""

    def first_boot(self) -> list[Step]:
        """The steps that make the volumes that the first boot reads, apart from the disk."""

    def detach(self) -> list[Step]:
        """The step that frees the drive for the payload CD; empty where the drive is free from the start."""

    def needs_key(self) -> bool:
        """Whether a key must be pressed before the firmware boots the node's medium."""

    def check_first_boot(self, result: str) -> None:
        """Check what :attr:`ready_command` printed.

        :raises GuestError: the first boot failed.
        """

    def was_cut_off(self, phases: Sequence[str], /) -> bool:
        """Whether the phases of a first boot, reported on the serial port, show that it was cut off and ended later."""

    def disk_logs(self, folder: Path, progress: Progress, /) -> list[DiskLog]:
        """The logs on the node's disk that explain why its first boot stopped.

        :param folder: for temporary files.
        :raises WinlabError: they can't be read.
        """

    def membership(self) -> list[Step]:
        """The steps from a booted guest with its payload CD to a member of the cluster that connects its pods."""

    def condition(self) -> Condition:
        """What the node reports about itself. A service that needs the cluster counts only once the node is a member.

        :raises GuestError: it can't be asked.
        """

    def start(self, service: str, progress: Progress, /) -> None:
        """Start a service that :meth:`condition` names, and make it start with the system.

        :raises GuestError: it does not start.
        """

    def restart_kubelet(self) -> None:
        """Restart the kubelet, which then registers the node if the cluster has forgotten it.

        :raises GuestError: it does not start.
        """


class MembershipSteps(Protocol):
    """How machines become nodes; :func:`winlab.steps.distribution.known.membership` has it."""

    def join(self, node: LinuxNode, before: State, /) -> Step:
        """The step that makes a prepared Linux node a member: a further controller, or a worker.

        :param before: the state that must come first.
        """

    def join_windows(self, node: WindowsNode, do: Callable[[Call[Any]], object], progress: Progress, /) -> None:
        """Make a Windows node a member that has its programs and its kubelet.

        :param do: runs a script in the node, again if the connection is lost.
        :raises GuestError: it did not join.
        """


class ControlPlaneSteps(MembershipSteps, Protocol):
    """A distribution's own part of the steps; :func:`winlab.steps.distribution.known.of` has it."""

    def init(self, node: LinuxNode, /) -> Step:
        """The step that makes the cluster on its first controller."""

    def access(self, node: LinuxNode, /) -> Step:
        """The step that gives this host an administrator's access, from the first controller."""

    def renew_administrator(self, fresh: LabFolder, after: Iterable[State], /) -> Step:
        """The step that makes another administrator, and takes all rights from the one that the lab has.

        :param fresh: gets the other one's kubeconfig.
        :param after: the states that must come first.
        """
