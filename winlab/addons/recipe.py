"""The steps of a lab's add-ons, besides those of its cluster (winlab/steps/recipe.py)."""

from __future__ import annotations

from winlab.adapters.kube.kubectl import Kubectl
from winlab.addons import record
from winlab.addons.api import Addon, Installation
from winlab.design.addon import registry
from winlab.engine.run import Run
from winlab.engine.state import Kind
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps.apply import apply
from winlab.steps.sources import Supply
from winlab.steps.states import API

RECORDED = Kind("addons-recorded", lambda _: "add-ons")


def steps(run: Run, supply: Supply) -> list[Step]:
    """All steps of a lab's add-ons; none if it has none."""
    if not run.plan.addons:
        return []
    all_steps = [_recorded(run)]
    for row in run.plan.addons:
        addon = registry()[row.name]
        if isinstance(addon, Addon):
            settings = addon.Settings.model_validate(row.settings)
            all_steps += addon.steps(
                settings, Installation(run, row, lambda wanted, say: supply.obtain_intact(list(wanted), say))
            )
    return all_steps


def _recorded(run: Run) -> Step:
    wanted = [record.written(run.plan)]

    def work(progress: Progress) -> None:
        progress.say(f"recording {', '.join(row.name for row in run.plan.addons)}")
        apply(Kubectl.of(run.folder), wanted, run, progress)

    def done() -> bool:
        return Kubectl.of(run.folder).same(wanted)

    return Step(RECORDED(run.lab), work, done, [API(run.lab)], usual=run.pace.usual(2))
