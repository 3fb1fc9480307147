"""Steps that turn a Linux guest into a node of the cluster, driven by winlab_node over ssh."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from winlab.adapters.guests.scripts import NodeScripts
from winlab.adapters.vm import domains
from winlab.design import contract
from winlab.design.plan.model import LinuxNode
from winlab.design.render.linux import LinuxFiles
from winlab.engine.run import Run
from winlab.engine.state import State
from winlab.engine.step import Step
from winlab.events import Progress
from winlab.steps import again, joining, pod_network
from winlab.steps.states import API, BOOTED, CNI, MEMBER, PAYLOAD_INSERTED, PODS_CONNECTED, PREPARED

# Go programs query with EDNS, and OVN's DNS (23.03) leaves such queries to the lab's name servers
HOSTS = 'read -r line && { grep -qxF "$line" /etc/hosts || echo "$line" >>/etc/hosts; }'


def steps(run: Run, node: LinuxNode) -> list[Step]:
    """The steps from a booted guest with the payload CD to a member that connects its pods.

    Controllers become members in control_plane.py.
    """
    join = [_join(run, node)] if node.role == "worker" else []
    return [_prepare(run, node), *join, _cni(run, node)]


def is_joined(there: NodeScripts) -> bool:
    """Whether the node is a member of the cluster."""
    return there.run(contract.LinuxStatus()).joined


def differing(facts: contract.LinuxFacts, wanted: contract.Prepare) -> list[str]:
    """What differs on a prepared node from what was rendered, by name: files, the kernel's settings, programs.

    :param facts: the answer to :func:`question`.
    """
    differ = [path for path, file in wanted.files.items() if not _same(facts.files.get(path), file)]
    programs = [] if facts.prepared else ["programs"]
    return [*differ, *facts.left_over, *facts.differing, *programs]


def question(wanted: contract.Prepare) -> contract.LinuxStatus:
    """The query to a node whose answer is compared with what is rendered for it."""
    return contract.LinuxStatus(files=tuple(wanted.files))


def _same(there: contract.FileFacts | None, wanted: contract.NodeFile) -> bool:
    return (
        there is not None
        and there.sha256 == hashlib.sha256(wanted.content.encode()).hexdigest()
        and (there.mode, there.owner) == (wanted.mode, wanted.owner or there.owner)
    )


def run_kubeadm(
    there: NodeScripts,
    call: contract.RunKubeadm,
    progress: Progress,
    is_on: Callable[[], bool],
    leave: Callable[[], object] = lambda: None,
) -> None:
    """Run kubeadm in a node, and report its output as progress.

    An interrupted earlier attempt is undone first: kubeadm starts over only on a clean node. The same is done if
    kubeadm's checks found containerd too slow; kubeadm is then run again.

    :param is_on: whether the node's machine runs.
    :param leave: undoes what that attempt did outside the node; called before the node is reset.
    """

    def work() -> None:
        # the attempt may still run in the node: kubeadm does not end with the winlab or the connection that started it
        if there.run(contract.LinuxStatus(settled=True), progress.say).started:
            progress.say("an earlier attempt was interrupted: kubeadm reset")
            leave()
            there.run(contract.RunKubeadm(arguments=["reset", "--force"]), progress.say)
        there.run(call, progress.say)

    again.act(there, call.script, progress, lambda: again.while_late(progress, work), is_on)


def is_on(run: Run, node: LinuxNode) -> Callable[[], bool]:
    """Whether the node's machine runs, each time it is asked."""
    return partial(domains.is_running, run.on(node).conn, node)


def _prepare(run: Run, node: LinuxNode) -> Step:
    prepare = LinuxFiles(run.plan, node).prepare()

    def work(progress: Progress) -> None:
        with run.node(node) as there:
            again.run(there, prepare, progress, is_on(run, node))

    def prepared(there: NodeScripts) -> bool:
        facts = there.run(question(prepare))
        return bool(facts.programs) and facts.containerd.service == "running" and not differing(facts, prepare)

    after = [BOOTED(run.lab, node.name), PAYLOAD_INSERTED(run.lab, node.name)]
    reaches = PREPARED(run.lab, node.name)
    return Step(reaches, work, run.asks(node, prepared), after, usual=run.pace.usual(40))


def _join(run: Run, node: LinuxNode) -> Step:
    def work(progress: Progress) -> None:
        with joining.credentials(run) as credentials, run.node(node) as there:
            if run.plan.alias is not None:
                name, address = run.plan.alias
                there.execute(["sudo", "sh", "-c", HOSTS], f"{address} {name}\n".encode())
            run_kubeadm(there, LinuxFiles(run.plan, node).join(credentials), progress, is_on(run, node))

    after = [_controllers_joined(run), PREPARED(run.lab, node.name)]
    return Step(MEMBER(run.lab, node.name), work, run.asks(node, is_joined), after, usual=run.pace.usual(20))


def _controllers_joined(run: Run) -> State:
    """The state in which all of the lab's controllers are members; they join one after another."""
    controllers = [node for node in run.plan.nodes if node.role == "controller"]
    return MEMBER(run.lab, controllers[-1].name) if controllers else API(run.lab)


def _cni(run: Run, node: LinuxNode) -> Step:
    """The step that writes the CNI profile's files."""

    def work(progress: Progress) -> None:
        call = LinuxFiles(run.plan, node).cni(pod_network.await_share(run, node, progress))
        with run.node(node) as there:
            again.run(there, call, progress, is_on(run, node))

    def done(there: NodeScripts) -> bool:
        wanted = LinuxFiles(run.plan, node).cni(pod_network.share(run, node)).files
        return pod_network.same_files(there.run(contract.LinuxStatus()).cni, wanted)

    after, also = [MEMBER(run.lab, node.name)], [PODS_CONNECTED(run.lab, node.name)]
    return Step(CNI(run.lab, node.name), work, run.asks(node, done), after, also, usual=3)
