"""How a lab is made: which steps there are for a plan. Their order follows from the states they name (states.py).

The guests, the cluster of them, and a golden image are three recipes; a lab with clones whose image is not there yet is
made by all three at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from winlab.design.catalog import recipes
from winlab.design.plan.model import NodePlan, Plan
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.steps import boot, foundation, golden, images, linux_nodes, machines, payload, pods, ready, windows_nodes
from winlab.steps.payload import Supply


def guests(run: Run) -> list[Step]:
    """All steps that make the plan's guests answer. Base volumes of golden images come by the recipes below."""
    found = [*foundation.steps(run), *images.steps(run), *images.drivers_steps(run)]
    for node in run.plan.nodes:
        found += _machine(run, node)
    return found


def cluster(run: Run, supply: Supply, admin: str = "") -> list[Step]:
    """All steps that make a cluster of guests that answer, or have them join one (*admin*: its kubeconfig)."""
    found = [*payload.steps(run, supply), *linux_nodes.steps(run, admin), *pods.steps(run, supply)]
    for node in run.plan.windows_nodes():
        found += windows_nodes.steps(run, node)
    return found + ready.steps(run)


def golden_upload(run: Run, built: Sequence[Plan] = ()) -> list[Step]:
    """The steps by which the golden images that clones stand on are in the pool; they are in the cache already.

    :param built: the builders of those that are not, which :func:`golden_build` makes.
    """
    return [
        golden.upload_step(run, _volume(run, builder), str(builder.golden))
        for builder in run.plan.builders
        if builder not in built
    ]


def golden_build(run: Run, built: Sequence[Plan], supply: Supply, *, alone: bool) -> list[Step]:
    """The steps that make golden images, and clones wait for. Once one is being sealed nothing else is done to it.

    :param run: of the lab with the clones.
    :param built: the plans of the labs in which they are made.
    :param alone: no other step brings the payload CD for Windows.
    """
    found = [payload.payload_step(run, supply, "windows")] if alone else []
    for builder in built:
        own = run.beside(builder)
        if not golden.is_sealed(own):
            found += [*foundation.steps(own), *images.steps(own), *images.drivers_steps(own)]
            for machine in builder.windows_nodes():
                found += [*_machine(own, machine), payload.insert_step(own, machine)]
                found += windows_nodes.programs(own, machine)
                if machine.windows.updates:
                    found.append(windows_nodes.updates_step(own, machine))
        found += golden.steps(own, _volume(run, builder), str(builder.golden))
    return found


def once(steps: Sequence[Step]) -> list[Step]:
    """The steps, of which several may bring the same thing that labs share, such as an image: the first brings it.

    It is done when it is for each of them: one lab may need no more of an image than the disks that it has.
    """
    own = [step for step in steps if step.reaches.lab]
    shared: dict[State, list[Step]] = {}
    for step in steps:
        if not step.reaches.lab:
            shared.setdefault(step.reaches, []).append(step)
    return [*(replace(same[0], done=partial(_all_done, same)) for same in shared.values()), *own]


def _all_done(steps: Iterable[Step]) -> bool:
    return all(step.done() for step in steps)


def _volume(run: Run, builder: Plan) -> str:
    """The base volume that the clones of a golden image stand on."""
    return run.plan.clones(builder.golden)[0].volume("base").name


def _machine(run: Run, node: NodePlan) -> list[Step]:
    """From volumes to a guest that answers and has its drives free."""
    found = [*machines.steps(run, node), boot.step(run, node, recipes.get(node.image).usual_boot_seconds)]
    if node.os == "windows":
        found.append(machines.detach_step(run, node))
    return found
