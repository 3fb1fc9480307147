"""Steps that change a standing lab, before and beside those that make what is missing (recipe.py).

Nodes that go are drained and removed, and the machines that stay get their new tags and sizes; everything that makes
something comes after that. Each step looks at the real system to tell whether it is done, so that an interrupted
change is continued by the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import domains
from winlab.design import contract
from winlab.design.addon import Object
from winlab.design.plan import required, tags
from winlab.design.plan.model import POOL_LABEL, NodePlan
from winlab.design.render import nodes
from winlab.engine import wait
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.engine.wait import Met, Waiting
from winlab.errors import ClusterError, StalledError
from winlab.events import Progress
from winlab.steps.states import (
    ADAPTED,
    API,
    DRAINED,
    LEFT,
    LOADED,
    MEMBER,
    PAYLOAD_INSERTED,
    READY,
    REGISTERED,
    REMOVED,
    SWITCHED_OFF,
    UNINSTALLED,
)

DRAIN = 120  # seconds on hardware that pods may take to end
PRESS = 30.0  # seconds after which the power button is pressed again: a guest that is starting does not hear it
SILENCE = 180.0  # seconds on hardware that a guest may take to shut down without writing anything
# kubeadm's own for controllers (k8s.io/kubernetes, cmd/kubeadm/app/constants: ControlPlaneTaint)
CONTROLLER_TAINT = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class Amendment:
    """What happens to a standing lab besides making what it lacks.

    :param digests: of the plans that its machines may say they were made from.
    :param removed: the nodes that go, by name, and their domains.
    :param rebuilt: those of them that are made anew.
    :param kept: the nodes whose machines stay, as they should be.
    :param restarted: those of them that are shut down, to start with their new sizes.
    :param reloaded: those of them that need another payload CD, with more images.
    :param registered: nodes whose labels and taints in the cluster change, or that were drained by a change that was
        taken back.
    :param uninstalled: the objects to delete in the cluster, by add-on.
    :param reachable: the API server answers.
    :param force: remove nodes even if their pods can't be moved.
    """

    digests: frozenset[str] = frozenset()
    removed: Mapping[str, str] = field(default_factory=dict)
    rebuilt: frozenset[str] = frozenset()
    kept: tuple[NodePlan, ...] = ()
    restarted: tuple[NodePlan, ...] = ()
    reloaded: tuple[NodePlan, ...] = ()
    registered: tuple[NodePlan, ...] = ()
    uninstalled: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    reachable: bool = False
    force: bool = False


def compose(run: Run, amendment: Amendment, making: Iterable[Step], *, cluster: bool) -> list[Step]:
    """All steps of a change: those that only a standing lab needs, and then those that make what is missing.

    :param making: the steps of the recipe for the new plan.
    :param cluster: they make the lab's cluster, too.
    """
    early = [_register(run, node, []) for node in amendment.registered if amendment.reachable]
    before = [step.reaches for step in early]
    drained = [_drain(run, name, domain, before, amendment) for name, domain in amendment.removed.items()]
    removed = [_remove(run, name, domain) for name, domain in amendment.removed.items()]
    adapted = [_adapt(run, node, amendment) for node in amendment.kept]
    off = [_switch_off(run, node) for node in amendment.restarted]
    begun = [step.reaches for step in (*removed, *adapted, *off)]
    steps = [*early, *drained, *removed, *adapted, *off]
    if cluster or run.folder.kubeconfig.exists():
        asked = [API(run.lab)] if cluster else []
        steps += [_leave(run, name, asked) for name in amendment.removed]
        steps += [_uninstall(run, name, objects, asked) for name, objects in amendment.uninstalled.items()]
        if not amendment.reachable:
            steps += [_register(run, node, asked) for node in amendment.registered]
    if cluster:
        steps += [_load(run, node) for node in amendment.reloaded]
    return [*steps, *(_after(run, step, amendment, begun) for step in making)]


def _after(run: Run, step: Step, amendment: Amendment, begun: Sequence[State]) -> Step:
    """A step that makes something, after those that change what is there. Other labs' steps don't wait."""
    if step.reaches.lab not in ("", run.lab):
        return step
    more = [*begun]
    more += [LEFT(run.lab, name) for name in amendment.rebuilt if step.reaches == MEMBER(run.lab, name)]
    more += [LOADED(run.lab, node.name) for node in amendment.reloaded if step.reaches == READY(run.lab, node.name)]
    return replace(step, after=[*step.needs, *more])


def _node_object(run: Run, name: str) -> dict[str, Any] | None:
    """The node in the cluster; None if there is none.

    :raises WinlabError: the API server does not answer.
    """
    rows = Kubectl.of(run.folder).get("nodes", f"--field-selector=metadata.name={name}")["items"]
    return rows[0] if rows else None


def _drain(run: Run, name: str, domain: str, after: Sequence[State], amendment: Amendment) -> Step:
    seconds = round(run.pace.usual(DRAIN))

    def work(progress: Progress) -> None:
        progress.say("its pods move to other nodes")
        words = ["drain", name, "--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={seconds}s"]
        if amendment.force:
            words += ["--force", "--disable-eviction"]
        try:
            Kubectl.of(run.folder).run(*words, limit=seconds)
        except ClusterError as error:
            if amendment.force:
                progress.say(f"not all of its pods have ended, and it is removed all the same: {error.why}")
                return
            raise ClusterError(
                f"The pods of '{name}' can't all be moved to other nodes.",
                why=error.why or error.what,
                cure="Remove or move them yourself, and run the same command again; with --force it deletes them. To "
                f"keep the node instead: winlab kubectl --lab {run.lab} -- uncordon {name}",
                evidence=f"winlab kubectl --lab {run.lab} -- get pods --all-namespaces "
                f"--field-selector=spec.nodeName={name}",
            ) from error

    def done() -> bool:
        if not domains.is_running(run.conn, domain) or not run.folder.kubeconfig.exists():
            return True  # its pods end when it leaves the cluster
        if amendment.force and not amendment.reachable:
            return True
        return _node_object(run, name) is None

    return Step(DRAINED(run.lab, name), work, done, after, usual=run.pace.usual(15))


def _remove(run: Run, name: str, domain: str) -> Step:
    def work(progress: Progress) -> None:
        progress.say("its machine and its disks")
        domains.remove(run.conn, domain)
        run.pool.refresh()
        for volume in run.pool.names(f"{run.lab}.{name}."):
            run.pool.delete(volume)

    def done() -> bool:
        if domains.find(run.conn, domain) is not None:
            return False
        run.pool.refresh()
        return not run.pool.names(f"{run.lab}.{name}.")

    return Step(REMOVED(run.lab, name), work, done, [DRAINED(run.lab, name)], usual=2)


def _leave(run: Run, name: str, after: Sequence[State]) -> Step:
    def work(progress: Progress) -> None:
        progress.say("its node is deleted in the cluster")
        Kubectl.of(run.folder).run("delete", "node", name, "--ignore-not-found")

    def done() -> bool:
        return _node_object(run, name) is None

    return Step(LEFT(run.lab, name), work, done, [REMOVED(run.lab, name), *after], usual=2)


def _adapt(run: Run, node: NodePlan, amendment: Amendment) -> Step:
    target, bus = node.system.payload_drive
    reloaded = node in amendment.reloaded
    sizes = (node.cpus, node.memory_mib)

    def work(progress: Progress) -> None:
        if domains.sizes(run.conn, node.domain) != sizes:
            progress.say(f"{node.cpus} CPUs, {node.memory_mib} MiB at its next start")
            domains.resize(run.conn, node.domain, *sizes)
        if reloaded:
            domains.eject(run.conn, node.domain, target, bus)  # the next payload CD has more images
        domains.set_tag(run.conn, node.domain, tags.of(run.plan, node))

    def done() -> bool:
        if domains.find(run.conn, node.domain) is None:
            return True  # it is made with its new sizes
        fits = domains.sizes(run.conn, node.domain) == sizes
        return fits and not reloaded and domains.carries(run.conn, node.domain, tags.of(run.plan, node))

    return Step(ADAPTED(run.lab, node.name), work, done, usual=0.2)


def _switch_off(run: Run, node: NodePlan) -> Step:
    def work(progress: Progress) -> None:
        pressed = 0.0

        def look() -> Met[None] | Waiting:
            nonlocal pressed
            if not pressed or time.monotonic() - pressed > PRESS:
                pressed = time.monotonic()
                domains.shut_down(run.conn, node.domain)
            if domains.state(run.conn, node.domain) in ("off", "crashed", "gone"):
                return Met(None)
            return Waiting(f"waiting for {node.name} to shut down", domains.written_bytes(run.conn, node.domain))

        wait.until(look, progress, give_up, stall=run.pace.silence(SILENCE))

    def give_up(_: Waiting) -> StalledError:
        return StalledError(
            f"'{node.name}' does not shut down.",
            why="The guest does nothing about its power button.",
            cure=f"Shut it down yourself, or cut its power with 'virsh destroy {node.domain}'. Then run the same "
            "command again.",
            evidence=f"winlab serial {node.name} --log --lab {run.lab}",
        )

    def done() -> bool:
        if not domains.is_running(run.conn, node.domain):
            return True
        return domains.sizes(run.conn, node.domain, now=True) == (node.cpus, node.memory_mib)

    return Step(SWITCHED_OFF(run.lab, node.name), work, done, [ADAPTED(run.lab, node.name)], usual=run.pace.usual(15))


def _register(run: Run, node: NodePlan, after: Sequence[State]) -> Step:
    labels = run.plan.labels(node)
    tainted = node.role == "controller" and nodes.member(run.plan, node).taints is None

    def differences(there: dict[str, Any]) -> list[tuple[str, ...]]:
        """What kubectl is told, so that the node is as one that joins now would be."""
        given, taints = there["metadata"].get("labels", {}), there["spec"].get("taints", [])
        words: list[tuple[str, ...]] = []
        if given.get(POOL_LABEL) != labels.get(POOL_LABEL):
            value = f"{POOL_LABEL}={labels[POOL_LABEL]}" if POOL_LABEL in labels else f"{POOL_LABEL}-"
            words.append(("label", "node", node.name, value, "--overwrite"))
        if node.role == "controller" and tainted != any(row["key"] == CONTROLLER_TAINT for row in taints):
            words.append(("taint", "node", node.name, f"{CONTROLLER_TAINT}:NoSchedule{'' if tainted else '-'}"))
        if there["spec"].get("unschedulable"):
            words.append(("uncordon", node.name))
        return words

    def work(progress: Progress) -> None:
        there = _node_object(run, node.name)
        for words in differences(there) if there is not None else ():
            progress.say(" ".join(words))
            Kubectl.of(run.folder).run(*words)

    def done() -> bool:
        there = _node_object(run, node.name)
        return there is None or not differences(there)  # a node that joins later is right from the start

    return Step(REGISTERED(run.lab, node.name), work, done, after, usual=1)


def _uninstall(run: Run, name: str, objects: Sequence[Object], after: Sequence[State]) -> Step:
    def work(progress: Progress) -> None:
        progress.say(f"{len(objects)} objects")
        Kubectl.of(run.folder).delete(objects)

    def done() -> bool:
        try:
            return not Kubectl.of(run.folder).has_any(objects)
        except ClusterError:
            return False

    return Step(UNINSTALLED(run.lab, of=name), work, done, after, usual=run.pace.usual(10))


def _load(run: Run, node: NodePlan) -> Step:
    """The step that imports the images of the new payload CD: nodes that are prepared look at it no more."""
    wanted = required.node_images(run.plan, controller=node.role == "controller")

    def work(progress: Progress) -> None:
        with run.node(node) as there:
            there.run(contract.LoadImages(images=wanted), progress.say)

    after = [PAYLOAD_INSERTED(run.lab, node.name), MEMBER(run.lab, node.name)]
    return Step(LOADED(run.lab, node.name), work, lambda: False, after, usual=run.pace.usual(20))
