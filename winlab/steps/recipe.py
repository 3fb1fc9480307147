"""How a lab is made: which steps there are for a plan. Their order follows from the states they name (states.py).

The guests, the cluster of them, and a golden image are three recipes; a lab with clones whose image is not there yet is
made by all three at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from winlab.design.catalog import recipes
from winlab.design.plan.model import NodePlan, Plan
from winlab.engine.run import Run
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

    :param built: the plans of the labs in which further ones are made.
    """
    made = {builder.golden for builder in built}
    wanted = {
        node.volume("base").name: str(node.windows.golden)
        for node in run.plan.clones()
        if node.windows.golden not in made
    }
    return [golden.upload_step(run, volume, key) for volume, key in wanted.items()]


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
        clone = run.plan.clones(builder.golden)[0]
        found += golden.steps(own, clone.volume("base").name, str(builder.golden))
    return once(found)


def once(steps: Iterable[Step]) -> list[Step]:
    """Each step once: what labs share, such as the image of a medium, may be wanted by several of them."""
    return list({step.reaches: step for step in steps}.values())


def _machine(run: Run, node: NodePlan) -> list[Step]:
    """From volumes to a guest that answers and has its drives free."""
    found = [*machines.steps(run, node), boot.step(run, node, recipes.get(node.image).usual_boot_seconds)]
    if node.os == "windows":
        found.append(machines.detach_step(run, node))
    return found
