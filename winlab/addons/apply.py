"""The default step of an add-on: it applies the manifests and waits until their workloads run."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.kube.workloads import workload_problem
from winlab.addons.installation import Installation
from winlab.design.addon import Object
from winlab.design.catalog.artifact import ContainerImage, Program
from winlab.design.plan.addons import manifests
from winlab.design.system import LINUX
from winlab.engine.state import Kind, State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, WinlabError
from winlab.events import Progress
from winlab.steps import controllers
from winlab.steps.apply import apply
from winlab.steps.states import BOOTED, READY, ROUTES

INSTALLED = Kind("addon-installed", lambda state: f"add-on {state.of}")
SILENCE = 300.0  # seconds on hardware without progress, while an add-on's pods become ready
RUN = ("Deployment", "DaemonSet", "StatefulSet", "APIService")  # the kinds that are workloads


def step(installation: Installation) -> Step:
    """The step that applies the manifests and waits until their workloads are ready."""
    run, name = installation.run, installation.row.name
    objects = manifests(installation.row, run.plan)

    def work(progress: Progress) -> None:
        kubectl = Kubectl.of(run.folder)
        progress.say(f"{len(objects)} objects")
        apply(kubectl, objects, run, progress)
        limit = run.pace.usual(SILENCE)
        controllers.until(run, lambda: _look(kubectl, objects), progress, give_up, stall=limit)

    def give_up(seen: Waiting) -> ClusterError:
        return ClusterError(
            f"The add-on '{name}' does not become ready.",
            why=seen.says,
            cure="Fix the cause and run the same command again; or leave the add-on out.",
            evidence="winlab kubectl -- get events --all-namespaces --field-selector=type=Warning",
        )

    def done() -> bool:
        try:
            kubectl = Kubectl.of(run.folder)
            return kubectl.same(objects) and isinstance(_look(kubectl, objects), Met)
        except WinlabError:
            return False

    return Step(INSTALLED(run.lab, of=name), work, done, _after(installation), usual=run.pace.usual(30))


def _after(installation: Installation) -> list[State]:
    """The states of its own machines, and of the nodes that its programs and images are for; by default Linux nodes."""
    run = installation.run
    parts = [part for part in installation.row.artifacts if isinstance(part, (ContainerImage, Program))]
    systems = {part.os for part in parts} or {LINUX.name}
    pools = installation.row.pools
    nodes = [node for node in run.plan.members if node.os in systems or node.pool in pools]
    own = [node for node in run.plan.beside if node.pool in pools]
    return [
        ROUTES(run.lab),
        *(READY(run.lab, node.name) for node in nodes),
        *(BOOTED(run.lab, node.name) for node in own),
    ]


def _look(kubectl: Kubectl, objects: Sequence[Object]) -> Met[None] | Waiting:
    """Whether all workloads among the objects are ready; if not, why."""
    signs: list[Hashable] = []
    problems: list[str] = []
    for item in objects:
        try:
            live = _live(kubectl, item)
        except ClusterError as error:  # the API server is busy or restarting
            return Waiting(f"waiting for the API server: {error.why or error.what}", "busy")
        if live is not None and (why := workload_problem(live)):
            problems.append(f"{item['kind']} {item['metadata']['name']}: {why}")
            signs.append(why)
    return Waiting("; ".join(problems), tuple(signs)) if problems else Met(None)


def _live(kubectl: Kubectl, item: Object) -> dict[str, Any] | None:
    """The object as the API server has it; None for kinds that are not workloads."""
    if item["kind"] not in RUN:
        return None
    words = [item["kind"].lower(), item["metadata"]["name"]]
    if namespace := item["metadata"].get("namespace"):
        words.append(f"--namespace={namespace}")
    live: dict[str, Any] = kubectl.get(*words)
    return live
