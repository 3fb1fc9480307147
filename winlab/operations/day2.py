"""Day-2 commands of a lab's cluster, each as a whole: find the nodes, hold the lab, do it, put things back."""

from __future__ import annotations

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm.connection import connected
from winlab.adapters.vm.volumes import Pool
from winlab.design.plan import required
from winlab.design.plan.model import Plan
from winlab.design.plan.stock import Stock
from winlab.engine import engine
from winlab.engine.step import Step
from winlab.errors import NotFoundError, UsageError
from winlab.events import Listener, Progress
from winlab.host.facts import read_facts
from winlab.lab_folder import LabState
from winlab.operations import bundle, labs, lock_file, lock_inputs, logs, push
from winlab.operations import load as images
from winlab.operations.drives import Drives
from winlab.operations.lock_file import Lock
from winlab.operations.logs import Report
from winlab.operations.push import Pushed
from winlab.steps.payload import Origin, choose
from winlab.steps.states import LOAD_READY
from winlab.supply.artifacts import store
from winlab.supply.images import cache

MOST_LINES = 10_000


def push_binary(lab: str, node: str, binary: str, progress: Progress, *, restore: bool = False) -> Pushed:
    """Swap a program on a node with the file *binary*; or bring the original back (*binary* is only its name then).

    :raises NotFoundError: there is no such lab or node, or it has no cluster.
    :raises UsageError: the file is not a program of this node; nothing was touched.
    :raises WinlabError: the node or the cluster refused.
    """
    state = LabState(lab)
    with connected() as conn:
        machine = labs.find_node(lab, node, conn)
        kubectl = Kubectl.of(state)
        with state.locked():
            drives = Drives(conn, Pool(conn), state)
            work = push.restore if restore else push.push
            return work(machine, binary, drives, kubectl, progress, scale=_scale())


def load_image(lab: str, image: str, tell: Listener, *, name: str = "") -> dict[str, list[str]]:
    """Bring an image to every node of its system; the nodes, by the image's full name.

    :param image: an archive, or the name of an image in the local engine.
    :param name: the name that it gets; by default its own.
    :raises NotFoundError: there is no such lab or image.
    :raises UsageError: it is no image that a node could run; nothing was touched.
    :raises WinlabError: a node refused.
    """
    state = LabState(lab)
    with connected() as conn, store.workspace() as folder:
        machines = labs.find(lab, conn)
        ready: list[images.Ready] = []

        def prepare(progress: Progress) -> None:
            ready.extend(images.prepare(image, folder, name=name, progress=progress))

        engine.run([Step(LOAD_READY(lab), prepare, lambda: False, usual=5)], tell, lab)
        nodes = images.nodes_for(ready, machines)
        with state.locked():
            drives = Drives(conn, Pool(conn), state)
            try:
                engine.run(images.steps(ready, nodes, drives), tell, lab)
            finally:
                images.clean(lab, drives)
    found: dict[str, list[str]] = {}
    for one in ready:
        found.setdefault(one.reference, []).extend(machine.tag.node for machine in nodes.get(one.os, []))
    return found


def reports(lab: str, node: str, lines: int) -> list[Report]:
    """What a node has to say, or all of them (*node* is empty).

    :param lines: of each log.
    :raises NotFoundError: there is no such lab or node.
    """
    if not 1 <= lines <= MOST_LINES:
        raise UsageError(f"--lines {lines} is not between 1 and {MOST_LINES}.")
    state = LabState(lab)
    with connected() as conn:
        machines = [labs.find_node(lab, node, conn)] if node else labs.find(lab, conn)
    try:
        kubectl = Kubectl.of(state)
    except NotFoundError:  # no cluster yet: the nodes have logs all the same
        kubectl = None
    return logs.gather(machines, state, kubectl, lines)


def current_lock(plan: Plan, stock: Stock, origin: Origin, spec: str, progress: Progress) -> Lock:
    """The lock of all that the lab would be made of now; fetches or makes what the cache does not have.

    :param spec: how the person named the spec.
    :raises WinlabError: as the source says.
    """
    supply, why = choose(plan, origin)
    progress.say(why)
    if origin.bundle is not None:
        bundle.restore_images(plan, origin.bundle, progress)
    for recipe in bundle.recipes(plan):
        if recipe.build is not None:  # only then it is known which packages it has; published ones have a digest
            cache.obtain(recipe, progress)
    media = lock_inputs.media(plan, stock)
    obtained = supply.obtain(required.every(plan), progress)
    return lock_file.collect(
        plan, obtained, media=media, images=lock_inputs.images(plan), spec=spec, source=supply.source.name
    )


def _scale() -> float:
    return read_facts().scale
