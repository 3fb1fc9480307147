"""How a lab is made: the steps for a plan. Their order follows from the states that they name (states.py).

There are three recipes: the guests, their cluster, and a golden image. A lab with clones whose golden image is missing
is made by all three at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from winlab.design.catalog import recipes
from winlab.design.plan.model import Plan
from winlab.design.plan.node_plan import NodePlan
from winlab.design.system import WINDOWS
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.steps import (
    boot,
    control_plane,
    foundation,
    golden,
    images,
    joining,
    machines,
    names,
    payload,
    pods,
    ready,
    systems,
)
from winlab.steps.sources import Supply
from winlab.steps.states import IMAGE
from winlab.steps.windows import media
from winlab.steps.windows import node as windows_node


def guests(run: Run) -> list[Step]:
    """All steps that make the plan's guests answer. Base volumes of golden images come from the recipes below."""
    steps = [*foundation.steps(run), *images.steps(run), *media.drivers_steps(run)]
    for node in run.plan.nodes:
        steps += _machine(run, node)
    return steps


def cluster(run: Run, supply: Supply, admin: str = "") -> list[Step]:
    """All steps that turn guests that answer into a cluster, or into workers of an external one.

    Machines of a lab without a cluster get only winlab's scripts.

    :param admin: the kubeconfig of the external cluster.
    """
    steps = payload.steps(run, supply)
    if run.plan.kubernetes is None:
        return steps
    steps += [joining.given_kubeconfig(run, admin)] if run.plan.joins else control_plane.steps(run)
    for node in run.plan.members:
        steps += systems.of(run, node).membership()
    return [*steps, *pods.steps(run, supply), *names.steps(run), *ready.steps(run)]


def golden_upload(run: Run, built: Sequence[Plan] = ()) -> list[Step]:
    """The steps that upload the golden images of clones from the cache to the pool.

    :param built: the builders of images that are not in the cache, which :func:`golden_build` makes.
    """
    made = {builder.lab for builder in built}  # not the plans: a builder may have moved to other addresses
    return [
        golden.upload_step(run, _volume(run, builder), str(builder.golden), host)
        for builder in run.plan.builders
        if builder.lab not in made
        for host in run.hosts(run.plan.clones(builder.golden))
    ]


def golden_build(run: Run, built: Sequence[Plan], supply: Supply, *, alone: bool) -> list[Step]:
    """The steps that make the golden images that clones wait for. Once sealing has begun, only its own steps remain.

    :param run: of the lab with the clones.
    :param built: the plans of the labs in which the images are made.
    :param alone: no other step makes payload CDs for Windows.
    """
    others = [] if alone else [node.hypervisor for node in run.plan.windows_nodes()]
    making = [machine for builder in built for machine in builder.windows_nodes()]
    steps = [payload.payload_step(run, supply, WINDOWS, host) for host in run.hosts(making) if host.name not in others]
    for builder in built:
        own = run.beside(builder)
        if not golden.is_sealed(own):
            steps += [*foundation.steps(own), *images.steps(own), *media.drivers_steps(own)]
            for machine in builder.windows_nodes():
                steps += [*_machine(own, machine), payload.insert_step(own, machine)]
                if machine.is_member:
                    steps += windows_node.programs(own, machine)
                if machine.windows.updates:
                    steps.append(windows_node.updates_step(own, machine))
        first, *rest = run.hosts(run.plan.clones(builder.golden))
        target, key = _volume(run, builder), str(builder.golden)
        steps += golden.steps(own, target, key, first)
        steps += [golden.upload_step(run, target, key, host, [IMAGE(of=target, host=first.name)]) for host in rest]
    return steps


def once(steps: Sequence[Step]) -> list[Step]:
    """The steps, with only one for each state that labs share, such as an image: the first step that reaches it.

    That step is done when all of them are: an image may be needed by one lab and no longer by another. If several
    hypervisors get images, a failure on one does not stop the others' uploads.
    """
    own = [step for step in steps if step.reaches.lab]
    shared: dict[State, list[Step]] = {}
    for step in steps:
        if not step.reaches.lab:
            shared.setdefault(step.reaches, []).append(step)
    hosts = {state.host for state in shared if state.host}
    return [
        *(
            replace(same[0], done=partial(_all_done, same), finishes=len(hosts) > 1 and bool(state.host))
            for state, same in shared.items()
        ),
        *own,
    ]


def _all_done(steps: Iterable[Step]) -> bool:
    return all(step.done() for step in steps)


def _volume(run: Run, builder: Plan) -> str:
    """The base volume of the clones of a golden image."""
    return run.plan.clones(builder.golden)[0].volume("base").name


def _machine(run: Run, node: NodePlan) -> list[Step]:
    """The steps from volumes to a guest that answers and whose drive is free for the payload CD."""
    started = machines.steps(run, node)
    booted = boot.step(run, node, recipes.get(node.image).usual_boot_seconds)
    return [*started, booted, *systems.of(run, node).detach()]
