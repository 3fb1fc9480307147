"""Steps that change an existing lab, in addition to those that make what is missing (recipe.py).

First, nodes to remove are drained and removed, and the machines that stay get their new tags and sizes. Steps that make
something come after that. Each step checks the real system to see whether it is done, so that the same steps resume
an interrupted change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from winlab.adapters.kube import identity
from winlab.adapters.kube.kubectl import Kubectl
from winlab.adapters.vm import devices, disks, domains
from winlab.adapters.vm.hypervisor import Placed
from winlab.design.addon import Object
from winlab.design.contract import on_both
from winlab.design.plan import required, tags
from winlab.design.plan.model import POOL_LABEL
from winlab.design.plan.node_plan import NodePlan
from winlab.design.render import nodes
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.errors import ClusterError
from winlab.events import Progress
from winlab.steps import again, names
from winlab.steps.power import shutdown
from winlab.steps.power.subject import Subject
from winlab.steps.states import (
    ADAPTED,
    API,
    CLEARED,
    DRAINED,
    IMAGE,
    LEFT,
    LOADED,
    MEMBER,
    PAYLOAD,
    PAYLOAD_INSERTED,
    READY,
    REGISTERED,
    REMOVED,
    STARTED,
    SWITCHED_OFF,
    UNINSTALLED,
)

DRAIN = 120  # seconds on hardware that pods may take to end
# of controllers, by their distribution (kubernetes.io/docs/reference/labels-annotations-taints)
CONTROLLER_TAINT = "node-role.kubernetes.io/control-plane"


@dataclass(frozen=True)
class Amendment:
    """What happens to an existing lab, apart from making what it lacks.

    :param removed: the nodes to remove, by name.
    :param beside: those of them that were beside the cluster: they need no drain.
    :param rebuilt: those of them that are created again.
    :param is_rebuilt: whether the lab's record says so of a node.
    :param clear: removes that from the record, once the old node is gone: a resumed change keeps the new one.
    :param kept: the nodes whose machines stay, as planned.
    :param restarted: those of them that are shut down, to start with their new sizes.
    :param reloaded: those of them that need another payload CD, with more images.
    :param registered: nodes whose labels and taints in the cluster change, or that a reverted change drained.
    :param uninstalled: the objects to delete in the cluster, by add-on.
    :param reachable: the API server answers.
    :param force: remove nodes even if their pods can't be moved.
    """

    removed: Mapping[str, Placed] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    rebuilt: frozenset[str] = frozenset()
    is_rebuilt: Callable[[str], bool] = lambda _: False
    clear: Callable[[str], None] = lambda _: None
    kept: tuple[NodePlan, ...] = ()
    restarted: tuple[NodePlan, ...] = ()
    reloaded: tuple[NodePlan, ...] = ()
    registered: tuple[NodePlan, ...] = ()
    uninstalled: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    reachable: bool = False
    force: bool = False


def compose(run: Run, amendment: Amendment, making: Iterable[Step], *, cluster: bool) -> list[Step]:
    """All steps of a change: those that only an existing lab needs, and then those that make what is missing.

    :param making: the steps of the recipe for the new plan.
    :param cluster: those steps also make the lab's cluster.
    """
    early = [_register(run, node, []) for node in amendment.registered if amendment.reachable]
    before = [step.reaches for step in early]
    drained = [_drain(run, name, machine, before, amendment) for name, machine in amendment.removed.items()]
    making = [_for_rebuilt(run, step, amendment) for step in making]
    shared = [step.reaches for step in making if not step.reaches.lab]
    removed = [
        # what a node is created from must be available before the old one is removed
        _remove(run, name, machine, shared if name in amendment.rebuilt else [])
        for name, machine in amendment.removed.items()
    ]
    adapted = [_adapt(run, node, amendment) for node in amendment.kept]
    leaving: list[Step] = []
    if cluster or run.folder.has(run.folder.kubeconfig):
        asked = [API(run.lab)] if cluster else []
        leaving += [_leave(run, name, asked) for name in amendment.removed if name not in amendment.beside]
        if _is_unnamed(run, amendment, cluster=cluster):
            after = [REMOVED(run.lab, name) for name in sorted(amendment.beside)]
            leaving.append(names.step(run, [*asked, *after]))
        leaving += [_uninstall(run, name, objects, asked) for name, objects in amendment.uninstalled.items()]
        if not amendment.reachable:
            leaving += [_register(run, node, asked) for node in amendment.registered]
    left = [step.reaches for step in leaving]
    cleared = [_clear(run, name, left, amendment) for name in sorted(amendment.rebuilt)]
    # a controller that is off can't serve a drain; with the cluster's steps, the API server does the rest later
    quiet = [step.reaches for step in (*early, *drained, *([] if cluster else leaving))]
    off = [_switch_off(run, node, quiet) for node in amendment.restarted]
    begun = [step.reaches for step in (*removed, *adapted, *off)]
    steps = [*early, *drained, *removed, *adapted, *off, *leaving, *cleared]
    if cluster:
        steps += [_load(run, node) for node in amendment.reloaded]
    return [*steps, *(_after(run, step, amendment, begun) for step in making)]


def _is_unnamed(run: Run, amendment: Amendment, *, cluster: bool) -> bool:
    """Whether cluster DNS must forget the names of removed machines here, because the recipe has no step for it."""
    own = run.plan.kubernetes
    gone = amendment.beside - amendment.rebuilt
    if not gone or own is None or not own.made:
        return False
    return not names.are_wanted(run.plan) if cluster else amendment.reachable


def _for_rebuilt(run: Run, step: Step, amendment: Amendment) -> Step:
    """A step that makes what labs share: machines to be created again need it, though they exist now."""
    for node in run.plan.nodes:
        if node.name not in amendment.rebuilt:
            continue
        if step.reaches == IMAGE(of=node.volume("base").name, host=node.hypervisor):
            return replace(step, done=partial(run.on(node).pool.is_complete, step.reaches.of))
        if step.reaches == PAYLOAD(of=node.os, host=node.hypervisor):
            return replace(step, done=lambda: False)
    return step


def _after(run: Run, step: Step, amendment: Amendment, begun: Sequence[State]) -> Step:
    """A step that makes something, after those that change what exists. Other labs' steps don't wait."""
    if step.reaches.lab not in ("", run.lab):
        return step
    again = [REMOVED(run.lab, name) for name in amendment.rebuilt]
    more = [state for state in begun if step.reaches.lab or state not in again]
    started = {STARTED(run.lab, name): name for name in amendment.rebuilt}
    more += [CLEARED(run.lab, started[step.reaches])] if step.reaches in started else []
    more += [LOADED(run.lab, node.name) for node in amendment.reloaded if step.reaches == READY(run.lab, node.name)]
    return replace(step, after=[*step.needs, *more])


def _node_object(run: Run, name: str) -> dict[str, Any] | None:
    """The node in the cluster; None if there is none.

    :raises WinlabError: the API server does not answer.
    """
    rows = Kubectl.of(run.folder).get("nodes", f"--field-selector=metadata.name={name}")["items"]
    return rows[0] if rows else None


def _drain(run: Run, name: str, machine: Placed, after: Sequence[State], amendment: Amendment) -> Step:
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
                f"keep the node instead, run 'winlab apply --lab {run.lab}' with the spec or count that the lab had.",
                evidence=f"winlab kubectl --lab {run.lab} -- get pods --all-namespaces "
                f"--field-selector=spec.nodeName={name}",
            ) from error

    def done() -> bool:
        if name in amendment.beside:
            return True
        if not domains.is_running(run.on(machine).conn, machine) or not run.folder.has(run.folder.kubeconfig):
            return True  # its pods end when it leaves the cluster
        if amendment.force and not amendment.reachable:
            return True
        return _node_object(run, name) is None

    return Step(DRAINED(run.lab, name), work, done, after, usual=run.pace.usual(15))


def _remove(run: Run, name: str, machine: Placed, after: Sequence[State]) -> Step:
    host = run.on(machine)

    def own_volumes() -> list[str]:
        return disks.unused(host, host.pool.names(f"{run.lab}.{name}."))

    def work(progress: Progress) -> None:
        progress.say("its machine and its disks")
        domains.remove(host.conn, machine)
        host.pool.refresh()
        disks.collect(host, host.pool.names(f"{run.lab}.{name}."))

    def done() -> bool:
        if domains.find(host.conn, machine) is not None:
            return False
        host.pool.refresh()
        return not own_volumes()

    return Step(REMOVED(run.lab, name), work, done, [DRAINED(run.lab, name), *after], usual=2)


def _leave(run: Run, name: str, after: Sequence[State]) -> Step:
    def work(progress: Progress) -> None:
        progress.say("its node is deleted in the cluster")
        kubectl = Kubectl.of(run.folder)
        kubectl.run("delete", "node", name, "--ignore-not-found")
        if run.plan.cluster.identifies:
            identity.remove(kubectl, name)

    def done() -> bool:
        if _node_object(run, name) is not None:
            return False
        return not (run.plan.cluster.identifies and identity.is_left(Kubectl.of(run.folder), name))

    return Step(LEFT(run.lab, name), work, done, [REMOVED(run.lab, name), *after], usual=2)


def _clear(run: Run, name: str, left: Sequence[State], amendment: Amendment) -> Step:
    def work(_: Progress) -> None:
        amendment.clear(name)

    def done() -> bool:
        return not amendment.is_rebuilt(name)

    after = [REMOVED(run.lab, name), *(state for state in left if state == LEFT(run.lab, name))]
    return Step(CLEARED(run.lab, name), work, done, after, usual=0.2)


def _adapt(run: Run, node: NodePlan, amendment: Amendment) -> Step:
    conn, (target, bus) = run.on(node).conn, node.system.payload_drive
    reloaded = node in amendment.reloaded
    sizes = (node.cpus, node.memory_mib)

    def work(progress: Progress) -> None:
        if domains.sizes(conn, node) != sizes:
            progress.say(f"{node.cpus} CPUs, {node.memory_mib} MiB at its next start")
            domains.resize(conn, node, *sizes)
        if reloaded:
            devices.eject(conn, node, target, bus)  # the next payload CD has more images
        domains.set_tag(conn, node, tags.of(run.plan, node))

    def done() -> bool:
        if domains.find(conn, node) is None:
            return True  # it is made with its new sizes
        fits = domains.sizes(conn, node) == sizes
        return fits and not reloaded and domains.carries(conn, node, tags.of(run.plan, node))

    return Step(ADAPTED(run.lab, node.name), work, done, usual=0.2)


def _switch_off(run: Run, node: NodePlan, after: Sequence[State]) -> Step:
    def work(progress: Progress) -> None:
        for machine in run.machines():
            if machine.uuid == node.uuid:
                shutdown.shut_down(Subject(run, machine), progress)

    def done() -> bool:
        if domains.state(run.on(node).conn, node) in (*domains.OFF, domains.CRASHED, "gone"):
            return True
        return domains.sizes(run.on(node).conn, node, now=True) == (node.cpus, node.memory_mib)

    needs = [ADAPTED(run.lab, node.name), *after]
    return Step(SWITCHED_OFF(run.lab, node.name), work, done, needs, usual=run.pace.usual(15))


def _register(run: Run, node: NodePlan, after: Sequence[State]) -> Step:
    labels = run.plan.labels(node)
    tainted = node.role == "controller" and nodes.member(run.plan, node).taints is None

    def differences(there: dict[str, Any]) -> list[tuple[str, ...]]:
        """kubectl's arguments that make the node equal to one that joins now."""
        given, taints = there["metadata"].get("labels", {}), there.get("spec", {}).get("taints", [])
        words: list[tuple[str, ...]] = []
        if given.get(POOL_LABEL) != labels.get(POOL_LABEL):
            value = f"{POOL_LABEL}={labels[POOL_LABEL]}" if POOL_LABEL in labels else f"{POOL_LABEL}-"
            words.append(("label", "node", node.name, value, "--overwrite"))
        if node.role == "controller" and tainted != any(row["key"] == CONTROLLER_TAINT for row in taints):
            words.append(("taint", "node", node.name, f"{CONTROLLER_TAINT}:NoSchedule{'' if tainted else '-'}"))
        if there.get("spec", {}).get("unschedulable"):
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
    """The step that imports the images of the new payload CD: prepared nodes no longer read it."""
    wanted = required.node_images(run.plan, controller=node.role == "controller")
    is_on = partial(domains.is_running, run.on(node).conn, node)

    def work(progress: Progress) -> None:
        with run.node(node) as there:
            again.run(there, on_both.LoadImages(images=wanted), progress, is_on)

    after = [PAYLOAD_INSERTED(run.lab, node.name), MEMBER(run.lab, node.name)]
    return Step(LOADED(run.lab, node.name), work, lambda: False, after, usual=run.pace.usual(20))
