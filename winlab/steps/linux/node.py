"""Steps that turn a Linux guest into a node of the cluster, driven by winlab_node over ssh."""

from __future__ import annotations

import hashlib

from winlab.adapters.guests.scripts import NodeScripts
from winlab.design.contract import on_linux
from winlab.design.plan.node_plan import LinuxNode
from winlab.design.render.linux import LinuxFiles
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import again, pod_network
from winlab.steps.distribution import known
from winlab.steps.states import API, BOOTED, CNI, MEMBER, PAYLOAD_INSERTED, PODS_CONNECTED, PREPARED


def steps(run: Run, node: LinuxNode) -> list[Step]:
    """The steps from a booted guest with the payload CD to a member that connects its pods.

    Controllers become members by :func:`winlab.steps.control_plane.steps`.
    """
    join = [known.membership(run).join(node, _controllers_joined(run))] if node.role == "worker" else []
    return [_prepare(run, node), *join, _cni(run, node)]


def differing(facts: on_linux.LinuxFacts, wanted: on_linux.Prepare) -> list[str]:
    """What differs on a prepared node from what was rendered, by name: files, the kernel's settings, programs.

    :param facts: the answer to :func:`question`.
    """
    differ = [path for path, file in wanted.files.items() if not _same(facts.files.get(path), file)]
    programs = [] if facts.prepared else ["programs"]
    return [*differ, *facts.left_over, *facts.differing, *programs]


def question(wanted: on_linux.Prepare) -> on_linux.LinuxStatus:
    """The query to a node whose answer is compared with what is rendered for it."""
    return on_linux.LinuxStatus(files=tuple(wanted.files))


def _same(there: on_linux.FileFacts | None, wanted: on_linux.NodeFile) -> bool:
    return (
        there is not None
        and there.sha256 == hashlib.sha256(wanted.content.encode()).hexdigest()
        and (there.mode, there.owner) == (wanted.mode, wanted.owner or there.owner)
    )


def _prepare(run: Run, node: LinuxNode) -> Step:
    prepare = LinuxFiles(run.plan, node).prepare()

    def work(progress: Progress) -> None:
        with run.node(node) as there:
            again.run(there, prepare, progress, again.is_on(run, node))

    def prepared(there: NodeScripts) -> bool:
        facts = there.run(question(prepare))
        return bool(facts.programs) and facts.containerd.service == "running" and not differing(facts, prepare)

    after = [BOOTED(run.lab, node.name), PAYLOAD_INSERTED(run.lab, node.name)]
    reaches = PREPARED(run.lab, node.name)
    return Step(reaches, work, run.asks(node, prepared), after, usual=run.pace.usual(40))


def _controllers_joined(run: Run) -> State:
    """The state in which all of the lab's controllers are members; they join one after another."""
    controllers = [node for node in run.plan.nodes if node.role == "controller"]
    return MEMBER(run.lab, controllers[-1].name) if controllers else API(run.lab)


def _cni(run: Run, node: LinuxNode) -> Step:
    """The step that writes the CNI profile's files."""

    def work(progress: Progress) -> None:
        call = LinuxFiles(run.plan, node).cni(pod_network.await_share(run, node, progress))
        with run.node(node) as there:
            again.run(there, call, progress, again.is_on(run, node))

    def done(there: NodeScripts) -> bool:
        wanted = LinuxFiles(run.plan, node).cni(pod_network.share(run, node)).files
        return pod_network.same_files(there.run(on_linux.LinuxStatus()).cni, wanted)

    after, also = [MEMBER(run.lab, node.name)], [PODS_CONNECTED(run.lab, node.name)]
    return Step(CNI(run.lab, node.name), work, run.asks(node, done), after, also, usual=3)
