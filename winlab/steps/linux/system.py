"""A Linux node's own part of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from winlab import documents
from winlab.design.catalog import recipes
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render.linux import LinuxFiles
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.errors import GuestError
from winlab.events import Progress
from winlab.steps.cut_off import READY
from winlab.steps.evidence import DiskLog
from winlab.steps.interface import Condition
from winlab.steps.linux import first_boot, node
from winlab.steps.states import PREPARED
from winlab.supply.images import cache


class LinuxSteps:
    """See :class:`winlab.steps.interface.SystemSteps`."""

    # cloud-init's own marker
    ready_command = "test -e /var/lib/cloud/instance/boot-finished && cat /run/cloud-init/result.json"
    last_phase = None  # the serial port reports the last phase only at the first boot
    bootstrap_log = "/var/log/cloud-init.log"
    bootstrap_cure = "Destroy the lab and create it again."

    def __init__(self, run: Run, node: LinuxNode) -> None:
        self._run = run
        self._node = node
        self._recipe = recipes.get(node.image)

    def image(self, progress: Progress) -> Path:
        """The cached image, which is built or downloaded if it is missing."""
        mirror = self._run.sources.mirror if self._recipe.download else None
        return cache.obtain(self._recipe, progress, mirror=mirror).path

    def check_image(self, image: Path) -> None:
        """Accept it: the cache has checked it against the recipe."""

    def image_seconds(self) -> float:
        """See the interface."""
        return 10.0 if cache.lookup(self._recipe) else float(self._recipe.usual_seconds)

    def first_boot(self) -> list[Step]:
        """The step that makes cloud-init's seed."""
        return first_boot.steps(self._run, self._node)

    def detach(self) -> list[Step]:
        """No steps: the seed has a separate drive."""
        return []

    def needs_key(self) -> bool:
        """False: the disk boots by itself."""
        return False

    def check_first_boot(self, result: str) -> None:
        """Check cloud-init's result.

        :raises GuestError: it reports errors.
        """
        try:
            errors = list(documents.from_json(result or "{}").get("v1", {}).get("errors", []))
        except (AttributeError, TypeError, ValueError) as error:
            raise GuestError(
                f"What cloud-init on '{self._node.name}' reports can't be read.",
                why=f"{type(error).__name__}: {error}",
                evidence=f"winlab exec {self._node.name} -- sudo cat {self.bootstrap_log}",
            ) from error
        if errors:
            raise GuestError(
                f"cloud-init on '{self._node.name}' reports errors.",
                why="; ".join(str(error)[:1000] for error in errors) or "It does not say which.",
                evidence=f"winlab exec {self._node.name} -- sudo cat {self.bootstrap_log}",
            )

    def was_cut_off(self, phases: Sequence[str]) -> bool:
        """See the interface. cloud-init runs bootcmd at each start, but reports that it is ready only once."""
        return READY in phases and phases[: phases.index(READY)].count("cloud-init") > 1

    def disk_logs(self, _folder: Path, _progress: Progress) -> list[DiskLog]:
        """No logs: the serial port shows all of a Linux boot."""
        return []

    def membership(self) -> list[Step]:
        """See the interface."""
        return node.steps(self._run, self._node)

    def condition(self) -> Condition:
        """See the interface."""
        wanted = LinuxFiles(self._run.plan, self._node).prepare()
        with self._run.node(self._node) as there:
            facts = there.run(node.question(wanted))
        services = {"containerd": facts.containerd.service}
        if not facts.joined:
            return Condition(services, joined=False)
        changed = dict.fromkeys(node.differing(facts, wanted), PREPARED)
        return Condition(services | {"kubelet": facts.kubelet.service}, joined=True, changed=changed)

    def start(self, service: str, progress: Progress) -> None:
        """See the interface."""
        progress.say(service)
        with self._run.node(self._node) as there:
            there.execute(["sudo", "systemctl", "enable", "--now", service])

    def restart_kubelet(self) -> None:
        """See the interface."""
        with self._run.node(self._node) as there:
            there.execute(["sudo", "systemctl", "restart", "kubelet"])
