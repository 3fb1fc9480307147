"""kubeadm's part of the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from winlab.design.contract.call import Call
from winlab.design.plan.node_plan import LinuxNode, WindowsNode
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.lab_folder import LabFolder
from winlab.steps.distribution import access
from winlab.steps.distribution.kubeadm import administrator, control_plane, workers


class KubeadmSteps:
    """See :class:`winlab.steps.interface.ControlPlaneSteps`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def init(self, node: LinuxNode) -> Step:
        """``kubeadm init``."""
        return control_plane.init(self._run, node)

    def access(self, node: LinuxNode) -> Step:
        """The step that takes the credentials from the controller's admin.conf."""
        return access.step(self._run, node)

    def renew_administrator(self, fresh: LabFolder, after: Iterable[State]) -> Step:
        """The step that gives kubeadm's ClusterRoleBinding to another group."""
        return administrator.renew(self._run, fresh, after)

    def join(self, node: LinuxNode, before: State) -> Step:
        """``kubeadm join``."""
        make = control_plane.join if node.role == "controller" else workers.linux
        return make(self._run, node, before)

    def join_windows(self, node: WindowsNode, do: Callable[[Call[Any]], object], progress: Progress) -> None:
        """``kubeadm.exe join``."""
        workers.windows(self._run, node, do, progress)
