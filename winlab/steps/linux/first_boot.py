"""What a Linux node reads at its first boot: cloud-init's seed, in a separate drive."""

from __future__ import annotations

from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render import cloud_init
from winlab.engine.run import Run
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import volumes
from winlab.steps.states import CREDENTIALS, SEED


def steps(run: Run, node: LinuxNode) -> list[Step]:
    """The step that makes the seed."""

    def make(progress: Progress) -> None:
        progress.say("user-data, meta-data, network-config")
        files = cloud_init.seed_files(run.plan, node, run.folder.credentials())
        volumes.upload_iso(run, node, node.volume("seed").name, cloud_init.SEED_LABEL, files)

    return [volumes.step(run, node, SEED, make, [CREDENTIALS(run.lab)], usual=1)]
