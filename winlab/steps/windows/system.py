"""A Windows node's own part of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab.design.plan.node_plan import WindowsNode
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps.evidence import DiskLog
from winlab.steps.interface import Condition
from winlab.steps.windows import first_boot, media, node, setup_logs
from winlab.supply.images import requirements


class WindowsSteps:
    """See :class:`winlab.steps.interface.SystemSteps`."""

    ready_command = r"cmd.exe /c type C:\winlab\ready.txt"  # bootstrap.ps1 writes it last
    last_phase = "ready"
    bootstrap_log = r"C:\winlab\bootstrap.log"
    bootstrap_cure = (
        r"Destroy the lab and create it again; or fix the cause in the guest, run winlab\bootstrap.ps1 from its answer "
        "CD again, and then the same command."
    )

    def __init__(self, run: Run, node: WindowsNode) -> None:
        self._run = run
        self._node = node

    def image(self, progress: Progress) -> Path:
        """The installation medium: the user's own, or the cache's."""
        return media.of(self._run, self._node, progress)

    def check_image(self, image: Path) -> None:
        """Check that Setup will find its answers on this medium, and that its build fits the cluster.

        :raises UsageError: it won't, or it doesn't.
        """
        requirements.check_build(self._run.plan, self._node, requirements.check_medium(self._node, image))

    def image_seconds(self) -> float:
        """See the interface."""
        return media.seconds(self._node)

    def first_boot(self) -> list[Step]:
        """The steps that make the answer file's CD and, unless the node is a clone, its medium."""
        return first_boot.steps(self._run, self._node)

    def detach(self) -> list[Step]:
        """The step that removes the installation's CDs: one of them is in the drive for the payload."""
        return [first_boot.detach(self._run, self._node)]

    def needs_key(self) -> bool:
        """See the interface."""
        return first_boot.needs_key(self._run, self._node)

    def check_first_boot(self, result: str) -> None:
        """Accept it: a failed bootstrap is reported on the serial port, and ready.txt is not written."""

    def was_cut_off(self, _phases: Sequence[str]) -> bool:
        """False: Setup itself restarts Windows, so its phases do not show it."""
        return False

    def disk_logs(self, folder: Path, progress: Progress) -> list[DiskLog]:
        """See :func:`winlab.steps.windows.setup_logs.read`."""
        return setup_logs.read(self._run, self._node, folder, progress)

    def membership(self) -> list[Step]:
        """See the interface."""
        return node.steps(self._run, self._node)

    def condition(self) -> Condition:
        """See the interface."""
        return node.condition(self._run, self._node)

    def start(self, service: str, progress: Progress) -> None:
        """Run the script that set the service up again: it starts a service that does not run."""
        node.start(self._run, self._node, service, progress)

    def restart_kubelet(self) -> None:
        """See the interface."""
        with self._run.node(self._node) as there:
            there.execute(["powershell.exe", "-NoProfile", "-Command", "Restart-Service -Name kubelet -Force"])
